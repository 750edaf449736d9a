/* What Python sees of the pump: Core, one for an event loop, and Transport, one for a socket. */
#include "pump.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

enum { MOST_PARTS = 8 }; /* written in one call */

static const char *const OUTCOMES[] = {"complete", "cut", "broken", "too_large", "engine_ended"};
static PyObject *data_received, *connection_lost, *pause_writing, *resume_writing, *relayed, *further;

typedef struct {
    PyObject_HEAD
    Slot *slot;
} Transport;

static PyTypeObject CoreType, TransportType;

static bool closing(const Transport *self) { return self->slot->closing || self->slot->aborting; }

/* Transport: asyncio's, as far as the router uses it */

static void transport_dealloc(Transport *self) {
    Core *core = self->slot->core;
    slot_release(self->slot);
    Py_DECREF(core);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* What the socket takes at once, if nothing waits before it: cheaper than to wake the pump's thread for it. An error is
 * that thread's to find. Under `writing`. */
static size_t send_now(const Slot *slot, struct iovec *parts, size_t count) {
    if (buffer_size(&slot->sending) || buffer_size(&slot->out))
        return 0;
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
    ssize_t sent = sendmsg(slot->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent < 0 ? 0 : (size_t)sent;
}

/* Whether the writer is to be told to pause, which it is from here. */
static bool add_out(Slot *slot, struct iovec *parts, size_t count) {
    bool pause = false, waits = false;
    pthread_mutex_lock(&slot->writing);
    if (!slot->gone && !slot->aborting) { /* the latter is ours to set */
        size_t sent = send_now(slot, parts, count);
        for (size_t at = 0; at < count; at++) {
            size_t size = parts[at].iov_len, skip = sent < size ? sent : size;
            buffer_add(&slot->out, (char *)parts[at].iov_base + skip, size - skip);
            sent -= skip;
        }
        waits = buffer_size(&slot->out);
        pause = buffer_size(&slot->out) + buffer_size(&slot->sending) > HIGH_WATER && !atomic_exchange(&slot->blocked, true);
    }
    pthread_mutex_unlock(&slot->writing);
    if (waits)
        core_touch(slot);
    return pause;
}

static PyObject *put(Transport *self, PyObject *const *parts, Py_ssize_t count) {
    Py_buffer held[MOST_PARTS];
    struct iovec vectors[MOST_PARTS];
    Py_ssize_t taken = 0;
    bool pause = false, failed = false;
    if (self->slot->closing)
        Py_RETURN_NONE;
    while (count > 0 && !failed) {
        for (taken = 0; taken < count && taken < MOST_PARTS; taken++) {
            failed = PyObject_GetBuffer(parts[taken], &held[taken], PyBUF_SIMPLE) < 0;
            if (failed)
                break;
            vectors[taken] = (struct iovec){held[taken].buf, (size_t)held[taken].len};
        }
        pause |= add_out(self->slot, vectors, (size_t)taken);
        for (Py_ssize_t at = 0; at < taken; at++)
            PyBuffer_Release(&held[at]);
        parts += taken;
        count -= taken;
    }
    if (failed)
        return NULL;
    if (pause && self->slot->protocol)
        return PyObject_CallMethodNoArgs(self->slot->protocol, pause_writing);
    Py_RETURN_NONE;
}

static PyObject *transport_write(Transport *self, PyObject *data) { return put(self, &data, 1); }

static PyObject *transport_writelines(Transport *self, PyObject *parts) {
    PyObject *sequence = PySequence_Fast(parts, "writelines takes a sequence of bytes");
    if (!sequence)
        return NULL;
    PyObject *result = put(self, PySequence_Fast_ITEMS(sequence), PySequence_Fast_GET_SIZE(sequence));
    Py_DECREF(sequence);
    return result;
}

/* Change a slot's flags under its lock and have it looked at. */
#define CHANGE(name, statement)                                      \
    static PyObject *name(Transport *self, PyObject *Py_UNUSED(_)) { \
        Slot *slot = self->slot;                                     \
        pthread_mutex_lock(&slot->lock);                             \
        statement;                                                   \
        bool look = !slot->gone && !(slot->reads_armed && slot_wants_read(slot)); \
        pthread_mutex_unlock(&slot->lock);                           \
        if (look)                                                    \
            core_touch(slot);                                        \
        Py_RETURN_NONE;                                              \
    }

CHANGE(transport_close, slot->closing = true)
CHANGE(transport_abort, slot->closing = slot->aborting = true)
CHANGE(transport_resume, slot->paused = false)
CHANGE(transport_step, (slot->stepping = true, slot->holding = false))
CHANGE(transport_next, slot->holding = false)
CHANGE(transport_run, slot->stepping = slot->holding = false)

static PyObject *transport_pause(Transport *self, PyObject *Py_UNUSED(_)) {
    pthread_mutex_lock(&self->slot->lock);
    self->slot->paused = true; /* seen when something comes */
    pthread_mutex_unlock(&self->slot->lock);
    Py_RETURN_NONE;
}

static PyObject *transport_is_closing(Transport *self, PyObject *Py_UNUSED(_)) {
    return PyBool_FromLong(closing(self) || self->slot->gone);
}

static PyObject *transport_relay(Transport *self, PyObject *args) {
    Transport *client;
    int chunked;
    Py_buffer begun;
    Py_ssize_t awaited;
    if (!PyArg_ParseTuple(args, "O!py*n", &TransportType, &client, &chunked, &begun, &awaited))
        return NULL;
    Slot *slot = self->slot, *to = client->slot;
    Relay *relay = need(calloc(1, sizeof *relay));
    relay->client = to;
    relay->active = true;
    relay->chunked = chunked;
    relay->awaited = awaited > 0 ? (size_t)awaited : 0;
    buffer_add(&relay->events, begun.buf, (size_t)begun.len);
    PyBuffer_Release(&begun);
    atomic_fetch_add(&to->references, 1);
    atomic_fetch_add(&slot->references, 1);
    pthread_mutex_lock(&to->lock);
    Slot *former = to->feeder;
    to->feeder = slot;
    pthread_mutex_unlock(&to->lock);
    slot_release(former);
    pthread_mutex_lock(&slot->lock);
    relay->activity = slot->core->now;
    Relay *old = slot->relay;
    slot->relay = relay;
    slot->stepping = slot->holding = false;
    bool gone = slot->gone;
    if (gone)
        relay->active = false;
    bool look = !gone && !slot->reads_armed; /* else its next event brings it to the other streams */
    pthread_mutex_unlock(&slot->lock);
    relay_free(old);
    if (look)
        core_touch(slot);
    return PyBool_FromLong(!gone);
}

/* (lines, last, when): after it not one more byte goes to the client. */
static PyObject *transport_collect(Transport *self, PyObject *Py_UNUSED(_)) {
    Slot *slot = self->slot;
    pthread_mutex_lock(&slot->lock);
    Relay *relay = slot->relay;
    slot->relay = NULL;
    if (relay && relay->active)
        slot->holding = true;
    pthread_mutex_unlock(&slot->lock);
    if (!relay)
        Py_RETURN_NONE;
    relay_unfeed(relay->client, slot);
    PyObject *result = Py_BuildValue(
        "(y#y#d)", relay->lines.data ? relay->lines.data : "", (Py_ssize_t)buffer_size(&relay->lines),
        relay->last.data ? relay->last.data : "", (Py_ssize_t)buffer_size(&relay->last), relay->activity);
    relay_free(relay);
    return result;
}

static PyObject *transport_activity(Transport *self, PyObject *Py_UNUSED(_)) {
    pthread_mutex_lock(&self->slot->lock);
    double activity = self->slot->relay ? self->slot->relay->activity : 0.0;
    pthread_mutex_unlock(&self->slot->lock);
    return PyFloat_FromDouble(activity);
}

static PyMethodDef transport_methods[] = {
    {"write", (PyCFunction)transport_write, METH_O, "Write bytes; none are lost before the connection is."},
    {"writelines", (PyCFunction)transport_writelines, METH_O, "Write several."},
    {"close", (PyCFunction)transport_close, METH_NOARGS, "Close after what is written."},
    {"abort", (PyCFunction)transport_abort, METH_NOARGS, "Close at once."},
    {"is_closing", (PyCFunction)transport_is_closing, METH_NOARGS, "Whether it is of no more use."},
    {"pause_reading", (PyCFunction)transport_pause, METH_NOARGS, "Read no more."},
    {"resume_reading", (PyCFunction)transport_resume, METH_NOARGS, "Read again."},
    {"step", (PyCFunction)transport_step, METH_NOARGS, "From now on hold after each read."},
    {"next", (PyCFunction)transport_next, METH_NOARGS, "One more read."},
    {"run", (PyCFunction)transport_run, METH_NOARGS, "Hold no more."},
    {"relay", (PyCFunction)transport_relay, METH_VARARGS,
     "relay(client, chunked, begun, awaited): move events from here to client; this socket must hold between two chunks. "
     "The protocol hears once that `awaited` tokens more were told, if that is not 0."},
    {"collect", (PyCFunction)transport_collect, METH_NOARGS,
     "(progress lines, last events, time of the last read): end the relay."},
    {"activity", (PyCFunction)transport_activity, METH_NOARGS, "When the relay last read, CLOCK_MONOTONIC."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject TransportType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "sunfleet_router._pump.Transport",
    .tp_basicsize = sizeof(Transport),
    .tp_dealloc = (destructor)transport_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "A socket of the pump.",
    .tp_methods = transport_methods,
};

/* Core */

static void core_shut(Core *self) {
    for (int *fd = (int[]){self->epoll, self->beat, self->wake, self->bell, -2}; *fd != -2; fd++)
        if (*fd >= 0)
            close(*fd);
    self->epoll = self->beat = self->wake = self->bell = -1;
}

static PyObject *core_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    if (!PyArg_ParseTuple(args, "") || (kwargs && PyDict_GET_SIZE(kwargs)))
        return NULL;
    Core *self = (Core *)type->tp_alloc(type, 0);
    if (!self)
        return NULL;
    self->last = &self->first;
    self->epoll = epoll_create1(EPOLL_CLOEXEC);
    self->beat = epoll_create1(EPOLL_CLOEXEC);
    self->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    self->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event woken = {.events = EPOLLIN | EPOLLET, .data.ptr = NULL}; /* each ring is an edge: nobody reads it */
    struct epoll_event beat = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = self};
    pthread_mutex_init(&self->lock, NULL);
    self->scratch = need(malloc(SCRATCH));
    int error = self->epoll < 0 || self->beat < 0 || self->wake < 0 || self->bell < 0 ? errno : 0;
    if (!error && (epoll_ctl(self->epoll, EPOLL_CTL_ADD, self->wake, &woken) < 0 ||
                   epoll_ctl(self->epoll, EPOLL_CTL_ADD, self->beat, &beat) < 0))
        error = errno;
    if (!error)
        error = pthread_create(&self->thread, NULL, core_run, self);
    if (error) {
        errno = error;
        PyErr_SetFromErrno(PyExc_OSError);
        Py_DECREF(self);
        return NULL;
    }
    self->running = true;
    return (PyObject *)self;
}

static PyObject *core_fileno(Core *self, PyObject *Py_UNUSED(_)) { return PyLong_FromLong(self->bell); }

static PyObject *core_adopt(Core *self, PyObject *args) {
    int fd;
    PyObject *protocol;
    if (!PyArg_ParseTuple(args, "iO", &fd, &protocol))
        return NULL;
    if (!self->running) {
        PyErr_SetString(PyExc_RuntimeError, "the pump is closed");
        return NULL;
    }
    Transport *transport = PyObject_New(Transport, &TransportType);
    if (!transport)
        return NULL;
    Slot *slot = need(calloc(1, sizeof *slot));
    slot->core = (Core *)Py_NewRef(self); /* the transport's reference; what the thread has goes before the core does */
    slot->fd = fd;
    slot->references = 2; /* the transport's and the list's */
    slot->reads_armed = true;
    pthread_mutex_init(&slot->lock, NULL);
    pthread_mutex_init(&slot->writing, NULL);
    transport->slot = slot;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = slot};
    pthread_mutex_lock(&self->lock);
    slot->later = self->open;
    if (self->open)
        self->open->earlier = slot;
    self->open = slot;
    pthread_mutex_unlock(&self->lock);
    slot->protocol = Py_NewRef(protocol);
    if (epoll_ctl(self->epoll, EPOLL_CTL_ADD, fd, &event) < 0)
        transport_abort(transport, NULL); /* Python hears that it is lost */
    return (PyObject *)transport;
}

static PyObject *deliver(Item *item) {
    Slot *slot = item->slot;
    PyObject *result = NULL;
    if (item->kind == LOST) {
        PyObject *protocol = slot->protocol;
        slot->protocol = NULL;
        if (!protocol)
            Py_RETURN_NONE;
        result = PyObject_CallMethodOneArg(protocol, connection_lost, Py_None);
        Py_DECREF(protocol);
        return result;
    }
    if (!slot->protocol || (slot->closing && item->kind == DATA) || slot->aborting)
        Py_RETURN_NONE;
    if (item->kind == PAUSE)
        return PyObject_CallMethodNoArgs(slot->protocol, pause_writing);
    if (item->kind == ROOM)
        return PyObject_CallMethodNoArgs(slot->protocol, resume_writing);
    if (item->kind == FURTHER)
        return PyObject_CallMethodNoArgs(slot->protocol, further);
    PyObject *data = PyBytes_FromStringAndSize(item->data, (Py_ssize_t)item->size);
    if (!data)
        return NULL;
    if (item->kind == DATA)
        result = PyObject_CallMethodOneArg(slot->protocol, data_received, data);
    else
        result = PyObject_CallMethod(slot->protocol, "relayed", "sO", OUTCOMES[item->outcome], data);
    Py_DECREF(data);
    return result;
}

static void delivered(Item *item) {
    Slot *slot = item->slot;
    if (item->kind != DATA)
        return;
    pthread_mutex_lock(&slot->lock);
    slot->undelivered -= item->size;
    bool look = !slot->reads_armed && slot_wants_read(slot);
    pthread_mutex_unlock(&slot->lock);
    if (look)
        core_touch(slot);
}

static PyObject *core_drain(Core *self, PyObject *Py_UNUSED(_)) {
    uint64_t count;
    if (self->bell >= 0 && read(self->bell, &count, sizeof count) < 0 && errno != EAGAIN)
        return PyErr_SetFromErrno(PyExc_OSError);
    pthread_mutex_lock(&self->lock);
    self->rung = false;
    Item *item = self->first;
    self->first = NULL;
    self->last = &self->first;
    pthread_mutex_unlock(&self->lock);
    while (item) {
        Item *next = item->next;
        PyObject *result = deliver(item);
        if (!result)
            PyErr_WriteUnraisable(item->slot->protocol); /* one connection's error is not the others' */
        Py_XDECREF(result);
        delivered(item);
        slot_release(item->slot);
        free(item);
        item = next;
    }
    Py_RETURN_NONE;
}

static void stop_thread(Core *self) {
    if (!self->running)
        return;
    self->running = false;
    atomic_store(&self->stopping, true);
    uint64_t one = 1;
    if (write(self->wake, &one, sizeof one) < 0)
        return; /* cannot happen: the counter is far from full */
    Py_BEGIN_ALLOW_THREADS
    pthread_join(self->thread, NULL);
    Py_END_ALLOW_THREADS
}

static PyObject *core_close(Core *self, PyObject *Py_UNUSED(_)) {
    stop_thread(self);
    while (self->open) { /* the thread is gone: nobody else touches anything */
        Slot *slot = self->open;
        self->open = slot->later;
        close(slot->fd);
        slot->gone = true;
        core_post(slot, LOST, 0, NULL, 0);
        slot_release(slot);
    }
    PyObject *result = core_drain(self, NULL);
    core_shut(self);
    return result;
}

static void core_dealloc(Core *self) {
    stop_thread(self);
    core_shut(self);
    free(self->scratch);
    buffer_free(&self->kept);
    buffer_free(&self->framed);
    pthread_mutex_destroy(&self->lock);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

/* Bodies come and go with each request: without this the C library gives their memory back each time, and the next one
 * pays for every page of it anew. What is larger than a body of usual size still goes back at once. */
static PyObject *keep_memory(PyObject *Py_UNUSED(module_), PyObject *Py_UNUSED(_)) {
#ifdef __GLIBC__ /* others have their own ways */
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
    mallopt(M_TRIM_THRESHOLD, 8 << 20);
    mallopt(M_TOP_PAD, 256 << 10);
#endif
    Py_RETURN_NONE;
}

static PyMethodDef module_methods[] = {
    {"keep_memory", keep_memory, METH_NOARGS, "Have freed memory kept for the next request."},
    {"outline", outline, METH_VARARGS, "See pump.h."},
    {"request", request, METH_O, "See pump.h."},
    {"answer", answer, METH_O, "See pump.h."},
    {"prompt_ids", prompt_ids, METH_O, "See pump.h."},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef core_methods[] = {
    {"fileno", (PyCFunction)core_fileno, METH_NOARGS, "Readable when there is something to drain."},
    {"adopt", (PyCFunction)core_adopt, METH_VARARGS, "adopt(fd, protocol): take a connected socket over."},
    {"drain", (PyCFunction)core_drain, METH_NOARGS, "Call the protocols with what has happened since."},
    {"close", (PyCFunction)core_close, METH_NOARGS, "End the thread and every connection."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject CoreType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "sunfleet_router._pump.Core",
    .tp_basicsize = sizeof(Core),
    .tp_dealloc = (destructor)core_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = "The pump's thread and its sockets.",
    .tp_methods = core_methods,
    .tp_new = core_new,
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_pump", "See router/native/pump.h.", -1, module_methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__pump(void) {
    data_received = PyUnicode_InternFromString("data_received");
    connection_lost = PyUnicode_InternFromString("connection_lost");
    pause_writing = PyUnicode_InternFromString("pause_writing");
    resume_writing = PyUnicode_InternFromString("resume_writing");
    relayed = PyUnicode_InternFromString("relayed");
    further = PyUnicode_InternFromString("further");
    if (!data_received || !connection_lost || !pause_writing || !resume_writing || !relayed || !further)
        return NULL;
    if (!message_init() || PyType_Ready(&CoreType) < 0 || PyType_Ready(&TransportType) < 0)
        return NULL;
    PyObject *made = PyModule_Create(&module);
    if (!made || PyModule_AddObjectRef(made, "Core", (PyObject *)&CoreType) < 0 ||
        PyModule_AddObjectRef(made, "Transport", (PyObject *)&TransportType) < 0)
        Py_CLEAR(made);
    return made;
}
