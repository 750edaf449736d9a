/* Where the ids of a prompt stand in an engine's answer, and how many they are: prompt_ids(). */
#define _GNU_SOURCE
#include "pump.h"

#include <string.h>

static const char KEY[] = "\"prompt_token_ids\":"; /* inside a JSON string its quotes would be escaped: it is a key */
enum { KEY_SIZE = sizeof KEY - 1 };

static bool blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* How often a byte is there; memchr would look for each one anew. */
static size_t count_of(const char *at, size_t left, char wanted) {
    size_t count = 0;
    while (left >= 32) { /* blocks whose counts fit a byte each: compilers make vectors of them */
        unsigned char lanes[32] = {0};
        size_t rows = left / 32 < 255 ? left / 32 : 255;
        for (size_t row = 0; row < rows; row++, at += 32)
            for (int lane = 0; lane < 32; lane++)
                lanes[lane] = (unsigned char)(lanes[lane] + (at[lane] == wanted));
        for (int lane = 0; lane < 32; lane++)
            count += lanes[lane];
        left -= rows * 32;
    }
    for (; left > 0; left--)
        count += *at++ == wanted;
    return count;
}

/* How many ids stand between the brackets of a list. */
static size_t ids_of(const char *list, size_t size) {
    size_t commas = count_of(list, size, ',');
    if (commas)
        return commas + 1;
    for (size_t at = 0; at < size; at++)
        if (!strchr("[] \t\r\n", list[at]) || !list[at])
            return 1;
    return 0;
}

PyObject *prompt_ids(PyObject *Py_UNUSED(module_), PyObject *data) {
    char *raw;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(data, &raw, &size) < 0)
        return NULL;
    const char *end = raw + size, *at = raw;
    while ((at = memmem(at, (size_t)(end - at), KEY, KEY_SIZE))) {
        at += KEY_SIZE;
        const char *list = at;
        while (list < end && blank(*list))
            list++;
        if (list == end || *list != '[')
            continue;
        const char *last = memchr(list, ']', (size_t)(end - list));
        if (!last)
            break;
        return Py_BuildValue("(nnn)", (Py_ssize_t)(list - raw), (Py_ssize_t)(last + 1 - raw),
                             (Py_ssize_t)ids_of(list, (size_t)(last + 1 - list)));
    }
    Py_RETURN_NONE;
}
