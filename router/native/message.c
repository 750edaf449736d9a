/* Takes apart a read that holds one plain HTTP/1.1 message and nothing else: request() and answer(). A parser that calls back
 * costs Python a dozen calls for each message; most are whole, sized, and say nothing odd.
 *
 * Whatever is not as plain as that is left to llhttp, which alone judges: several reads or messages, chunks, a connection that
 * shall end or become another, an expectation, an empty or folded value, a byte that is rare. What is taken here llhttp would
 * have taken, with the same parts; the tests hold it to that.
 */
#include "pump.h"

#include <string.h>
#include <strings.h>

enum { MOST_HEADERS = 64, MOST_HEAD = 32 << 10, MOST_DIGITS = 12 };
enum { TOKEN = 1, TARGET = 2, TEXT = 4 }; /* where a byte may stand */

typedef struct {
    const char *name, *value;
    size_t name_size, value_size;
} Header;

typedef struct {
    const char *at, *end; /* what is not read yet */
    Header headers[MOST_HEADERS];
    size_t count;
    bool sized;
    size_t length; /* of the body */
} Message;

static unsigned char places[256];
static PyObject *get, *post;

bool message_init(void) {
    for (int c = ' '; c < 0x7f; c++) {
        bool word = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || strchr("-._~!$&'*+", c);
        places[c] = (unsigned char)(TEXT | (word ? TOKEN : 0) | (word || strchr("/%?=:@,;()", c) ? TARGET : 0));
    }
    get = PyUnicode_InternFromString("GET");
    post = PyUnicode_InternFromString("POST");
    return get && post;
}

/* How many bytes from here on may stand in such a place. */
static size_t run_of(const Message *message, int place) {
    const char *at = message->at;
    while (at < message->end && places[(unsigned char)*at] & place)
        at++;
    return (size_t)(at - message->at);
}

static bool skip(Message *message, const char *text, size_t size) {
    if ((size_t)(message->end - message->at) < size || memcmp(message->at, text, size))
        return false;
    message->at += size;
    return true;
}

static bool is(const char *data, size_t size, const char *word) {
    return size == strlen(word) && !strncasecmp(data, word, size);
}

static bool read_length(Message *message, const Header *header) {
    if (message->sized || header->value_size > MOST_DIGITS)
        return false;
    for (size_t at = 0; at < header->value_size; at++) {
        if (header->value[at] < '0' || header->value[at] > '9')
            return false;
        message->length = message->length * 10 + (size_t)(header->value[at] - '0');
    }
    return message->sized = true;
}

/* Whether a header leaves the message plain. */
static bool is_plain(Message *message, const Header *header) {
    static const char *const odd[] = {"transfer-encoding", "expect", "upgrade", "proxy-connection"};
    for (size_t at = 0; at < sizeof odd / sizeof *odd; at++)
        if (is(header->name, header->name_size, odd[at]))
            return false;
    if (is(header->name, header->name_size, "connection"))
        return is(header->value, header->value_size, "keep-alive");
    return !is(header->name, header->name_size, "content-length") || read_length(message, header);
}

static bool read_header(Message *message) {
    Header *header = &message->headers[message->count++];
    header->name = message->at;
    message->at += header->name_size = run_of(message, TOKEN);
    if (!header->name_size || !skip(message, ":", 1))
        return false;
    while (skip(message, " ", 1)) {
    }
    header->value = message->at;
    message->at += header->value_size = run_of(message, TEXT);
    return header->value_size && header->value[header->value_size - 1] != ' ' && skip(message, "\r\n", 2) &&
           is_plain(message, header);
}

/* From behind the first line: whether the rest is plain headers and exactly the body that they promise. */
static bool read_rest(Message *message, const char *begin) {
    while (!skip(message, "\r\n", 2))
        if (message->count == MOST_HEADERS || !read_header(message))
            return false;
    return message->at - begin <= MOST_HEAD && (size_t)(message->end - message->at) == message->length;
}

static bool begin(Message *message, PyObject *data) {
    char *bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(data, &bytes, &size) < 0)
        return false;
    *message = (Message){.at = bytes, .end = bytes + size};
    return true;
}

static PyObject *lower(const char *data, size_t size) {
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    for (size_t at = 0; made && at < size; at++)
        PyBytes_AS_STRING(made)[at] = (char)(data[at] >= 'A' && data[at] <= 'Z' ? data[at] | 0x20 : data[at]);
    return made;
}

/* [(name in lower case, value), ...] */
static PyObject *headers_of(const Message *message) {
    PyObject *list = PyList_New((Py_ssize_t)message->count);
    for (size_t at = 0; list && at < message->count; at++) {
        const Header *header = &message->headers[at];
        PyObject *pair = Py_BuildValue("(Ny#)", lower(header->name, header->name_size), header->value,
                                       (Py_ssize_t)header->value_size);
        if (pair)
            PyList_SET_ITEM(list, (Py_ssize_t)at, pair);
        else
            Py_CLEAR(list);
    }
    return list;
}

PyObject *request(PyObject *Py_UNUSED(module_), PyObject *data) {
    Message message;
    if (!begin(&message, data))
        return NULL;
    const char *first = message.at;
    PyObject *method = skip(&message, "POST ", 5) ? post : skip(&message, "GET ", 4) ? get : NULL;
    const char *target = message.at;
    size_t size = run_of(&message, TARGET);
    message.at += size;
    if (!method || !size || *target != '/' || !skip(&message, " HTTP/1.1\r\n", 11) || !read_rest(&message, first))
        Py_RETURN_NONE;
    return Py_BuildValue("(Oy#Ny#)", method, target, (Py_ssize_t)size, headers_of(&message), message.at,
                         (Py_ssize_t)message.length);
}

/* Three digits and a blank, of an answer that has a body; 0 for any other. */
static int read_status(Message *message) {
    const char *code = message->at;
    if (message->end - code < 4 || code[0] < '2' || code[0] > '5' || code[1] < '0' || code[1] > '9' || code[2] < '0' ||
        code[2] > '9' || code[3] != ' ')
        return 0;
    message->at += 4;
    int status = (code[0] - '0') * 100 + (code[1] - '0') * 10 + code[2] - '0';
    return status == 204 || status == 304 ? 0 : status;
}

PyObject *answer(PyObject *Py_UNUSED(module_), PyObject *data) {
    Message message;
    if (!begin(&message, data))
        return NULL;
    const char *first = message.at;
    int status = skip(&message, "HTTP/1.1 ", 9) ? read_status(&message) : 0;
    message.at += run_of(&message, TEXT);
    if (!status || !skip(&message, "\r\n", 2) || !read_rest(&message, first) || !message.sized)
        Py_RETURN_NONE; /* without a length it ends with the connection */
    return Py_BuildValue("(iy#)", status, message.at, (Py_ssize_t)message.length);
}
