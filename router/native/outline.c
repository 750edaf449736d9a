/* Finds the long texts of a JSON document, so that no parser has to make objects of them: outline(). Every one that is found
 * has been checked as a parser would: what is left of the document, without them, says whether the whole is JSON.
 */
#include "pump.h"

#include <string.h>

enum { MOST_TEXTS = 1024 };

typedef struct {
    const unsigned char *at, *end;
    size_t saved; /* bytes that the text is shorter by once its escapes are read */
} Scan;

/* How many bytes from here on are plain ASCII of a text: no quote, no backslash, no control character. */
static size_t plain(const unsigned char *at, const unsigned char *end) {
    const unsigned char *from = at;
    for (; end - at >= 32; at += 32) { /* compilers make vectors of it */
        unsigned char odd = 0;
        for (int lane = 0; lane < 32; lane++)
            odd |= (unsigned char)((at[lane] == '"') | (at[lane] == '\\') | (at[lane] < 0x20) | (at[lane] >= 0x80));
        if (odd)
            break;
    }
    while (at < end && *at >= 0x20 && *at < 0x80 && *at != '"' && *at != '\\')
        at++;
    return (size_t)(at - from);
}

/* One character beyond ASCII: false where it is no UTF-8 (RFC 3629). */
static bool beyond_ascii(Scan *scan) {
    const unsigned char *at = scan->at;
    size_t left = (size_t)(scan->end - at), more = at[0] >= 0xf0 ? 3 : at[0] >= 0xe0 ? 2 : 1;
    if (at[0] < 0xc2 || at[0] > 0xf4 || left <= more)
        return false;
    for (size_t next = 1; next <= more; next++)
        if ((at[next] & 0xc0) != 0x80)
            return false;
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) || (at[0] == 0xf0 && at[1] < 0x90) ||
        (at[0] == 0xf4 && at[1] > 0x8f))
        return false; /* too long for what it says, half of a pair, or no character at all */
    scan->at += more + 1;
    return true;
}

/* Four hex digits; -1 for what is none. */
static long four_digits(const Scan *scan, size_t from) {
    if ((size_t)(scan->end - scan->at) < from + 4)
        return -1;
    long value = 0;
    for (size_t at = from; at < from + 4; at++) {
        unsigned char c = scan->at[at], low = c | 0x20;
        if (c >= '0' && c <= '9')
            value = value * 16 + c - '0';
        else if (low >= 'a' && low <= 'f')
            value = value * 16 + low - 'a' + 10;
        else
            return -1;
    }
    return value;
}

static bool escape(Scan *scan) {
    if (scan->end - scan->at < 2)
        return false;
    if (scan->at[1] != 'u') {
        scan->saved += 1;
        scan->at += 2;
        return strchr("\"\\/bfnrt", scan->at[-1]) && scan->at[-1];
    }
    long value = four_digits(scan, 2);
    if (value < 0 || (value >= 0xdc00 && value < 0xe000))
        return false;
    if (value >= 0xd800 && value < 0xdc00) { /* half of a pair: the other must follow */
        long other = scan->end - scan->at >= 8 && scan->at[6] == '\\' && scan->at[7] == 'u' ? four_digits(scan, 8) : -1;
        if (other < 0xdc00 || other >= 0xe000)
            return false;
        scan->saved += 12 - 4;
        scan->at += 12;
        return true;
    }
    scan->saved += 6 - (value < 0x80 ? 1 : value < 0x800 ? 2 : 3);
    scan->at += 6;
    return true;
}

/* From behind a text's first quote to behind its last; false for what is no text. */
static bool text(Scan *scan) {
    scan->saved = 0;
    while (scan->at < scan->end) {
        scan->at += plain(scan->at, scan->end);
        if (scan->at == scan->end)
            return false;
        if (*scan->at == '"') {
            scan->at++;
            return true;
        }
        if (!(*scan->at == '\\' ? escape(scan) : *scan->at >= 0x80 && beyond_ascii(scan)))
            return false;
    }
    return false;
}

static bool is_key(const Scan *scan) {
    const unsigned char *at = scan->at;
    while (at < scan->end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r'))
        at++;
    return at < scan->end && *at == ':';
}

/* Add (start, end, size) to `texts`. */
static bool note(PyObject *texts, const unsigned char *data, const unsigned char *start, const Scan *scan) {
    PyObject *one = Py_BuildValue("(nnn)", (Py_ssize_t)(start - data), (Py_ssize_t)(scan->at - data),
                                  (Py_ssize_t)(scan->at - start - 2) - (Py_ssize_t)scan->saved);
    bool added = one && !PyList_Append(texts, one);
    Py_XDECREF(one);
    return added;
}

/* Fill `texts` with the long ones and `rest` with the document without them: 1; 0 for none or for what is no JSON; -1 with an
 * error set. */
static int take_out(const Py_buffer *given, size_t least, const Py_buffer *mark, PyObject *texts, Buffer *rest) {
    const unsigned char *data = given->buf, *last = data;
    Scan scan = {.at = data, .end = data + given->len};
    while ((scan.at = memchr(scan.at, '"', (size_t)(scan.end - scan.at)))) {
        const unsigned char *start = scan.at++;
        if (!text(&scan))
            return 0;
        if ((size_t)(scan.at - start) < least || is_key(&scan))
            continue;
        char number[16];
        int digits = snprintf(number, sizeof number, "%zd\"", PyList_GET_SIZE(texts));
        if (PyList_GET_SIZE(texts) == MOST_TEXTS)
            return 0;
        if (!note(texts, data, start, &scan))
            return -1;
        buffer_add(rest, last, (size_t)(start - last));
        buffer_add(rest, mark->buf, (size_t)mark->len);
        buffer_add(rest, number, (size_t)digits);
        last = scan.at;
    }
    buffer_add(rest, last, (size_t)(scan.end - last));
    return PyList_GET_SIZE(texts) > 0;
}

PyObject *outline(PyObject *Py_UNUSED(module_), PyObject *args) {
    Py_buffer given, mark;
    Py_ssize_t least;
    if (!PyArg_ParseTuple(args, "y*ny*", &given, &least, &mark))
        return NULL;
    Buffer rest = {0};
    PyObject *texts = PyList_New(0), *result = NULL;
    int found = texts ? take_out(&given, (size_t)least, &mark, texts, &rest) : -1;
    if (found > 0)
        result = Py_BuildValue("(y#O)", buffer_at(&rest), (Py_ssize_t)buffer_size(&rest), texts);
    else if (!found)
        result = Py_NewRef(Py_None);
    buffer_free(&rest);
    Py_XDECREF(texts);
    PyBuffer_Release(&given);
    PyBuffer_Release(&mark);
    return result;
}
