/* The pump: sockets of clients and engines on a thread of its own, beside the Python interpreter.
 *
 * Python decides and parses heads; the pump reads, writes, waits, and moves the events of a decode stream from an engine's
 * socket to its client's (relay.c). The pump's thread never needs the interpreter's lock: it leaves what it has for Python
 * in a queue, which the event loop empties when an eventfd says so.
 *
 * Who may touch what: epoll and reading belong to the pump's thread, which alone closes; protocols and Python objects to
 * the event loop's; the fields of a slot are under its lock, but for what waits to be written, which `writing` guards with the
 * socket's end: Python's thread writes without holding up a read. Only the pump's thread ever holds locks of two slots, or
 * both of one (`lock` first).
 *
 * Relayed streams are in an epoll of their own. The first event of a quiet time goes on at once; from then on all that have
 * something are read together on each beat, for waking up costs more than what an event needs.
 */
#ifndef SUNFLEET_PUMP_H
#define SUNFLEET_PUMP_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SCRATCH = 256 << 10,    /* bytes of one read */
    READ_AHEAD = 256 << 10, /* bytes of one socket that may wait for Python */
    HIGH_WATER = 64 << 10,  /* bytes that wait for a socket: above it the writer is told to pause */
    LOW_WATER = 16 << 10,   /* and below it to go on */
    BEAT_US = 500, /* relayed streams are read this seldom at most, all that have something together */
    MOST_EVENT = 16 << 20,  /* bytes of one event; as in engines/relay.py */
};

typedef struct {
    char *data;
    size_t start, end, room;
} Buffer;

static inline size_t buffer_size(const Buffer *buffer) { return buffer->end - buffer->start; }
static inline char *buffer_at(const Buffer *buffer) { return buffer->data + buffer->start; }
void buffer_add(Buffer *buffer, const void *data, size_t size);
void buffer_take(Buffer *buffer, size_t size); /* drop from the front */
void buffer_set(Buffer *buffer, const void *data, size_t size);
void buffer_free(Buffer *buffer);
void *need(void *memory); /* ends the process where there is none */

typedef enum { DATA, LOST, PAUSE, ROOM, FURTHER, RELAYED } Kind;

/* How a relay ended; the names of the Python side are in module.c. */
typedef enum { COMPLETE, CUT, BROKEN, TOO_LARGE, ENGINE_ENDED } Outcome;

typedef struct Slot Slot;
typedef struct Core Core;

typedef struct Item { /* one thing for Python, with a reference to its slot */
    struct Item *next;
    Slot *slot;
    Kind kind;
    Outcome outcome;
    size_t size;
    char data[];
} Item;

typedef struct { /* a decode stream on its way from the slot that holds it to the slot `client` */
    Slot *client;   /* a reference */
    bool active;    /* false: not one more byte goes to the client */
    bool chunked;   /* the client's framing */
    int state;      /* of the engine's chunks, relay.c */
    size_t left;    /* bytes of the present chunk */
    Buffer events;  /* begun */
    Buffer lines;   /* progress lines of all events so far */
    Buffer last;    /* the events that went out last */
    size_t awaited; /* tokens that lines must tell until Python hears of it; 0: no more */
    double activity; /* of the last read: CLOCK_MONOTONIC, seconds */
} Relay;

struct Slot { /* one socket */
    Core *core;
    pthread_mutex_t lock, writing;
    atomic_int references;
    int fd;
    bool reads_armed, writes_armed; /* what epoll was told */
    bool on_beat;  /* its reads are told to the epoll of relayed streams */
    bool paused;   /* by Python */
    bool stepping; /* after each read it holds until Python says `next` */
    bool holding;
    bool closing, aborting; /* Python wants it closed: after what is written, or at once */
    bool gone;              /* closed; changed under both locks */
    atomic_bool blocked;    /* more than HIGH_WATER waited, and not yet less than LOW_WATER */
    size_t undelivered;     /* bytes read that Python has not got */
    Buffer out;             /* to be written; under `writing` */
    Buffer sending;         /* before `out`; likewise */
    Relay *relay;           /* of an engine's socket */
    Slot *feeder;           /* of a client's: whose relay goes here; a reference */
    Slot *next_dirty, *next_look, *next_lost;
    bool dirty;
    Slot *earlier, *later; /* all open ones, under the core's lock */
    PyObject *protocol;    /* under the interpreter's lock */
};

struct Core {
    PyObject_HEAD
    pthread_t thread;
    bool running;
    atomic_bool stopping;
    int epoll, wake, bell; /* bell: readable when there is something for Python */
    int beat;              /* the epoll of relayed streams, itself in `epoll` while no beat is due */
    pthread_mutex_t lock;  /* of all below */
    Slot *dirty;
    bool sleeping;
    bool rung;
    Item *first, **last;
    Slot *open;
    Slot *lost;     /* the pump's thread's: closed in the present round */
    double now;     /* the pump's thread's: of the present round */
    double next_beat; /* the pump's thread's: when relayed streams are looked at again; 0: as soon as one has something */
    char *scratch;
    Buffer kept, framed;
};

/* outline.c: outline(data, least, mark) -> (the document with `mark` and a number, as a text, for each long text,
 * [(start, end, bytes of the text in UTF-8), ...]); None where none is found or something is no JSON. */
PyObject *outline(PyObject *module, PyObject *args);

/* message.c: request(data) -> (method, target, [(name in lower case, value), ...], body) and answer(data) -> (status, body) of
 * a read that is one plain message; None for any other, which an HTTP parser must judge. */
bool message_init(void);
PyObject *request(PyObject *module, PyObject *data);
PyObject *answer(PyObject *module, PyObject *data);

/* ids.c: prompt_ids(data) -> (begin, end, how many) of the first list of prompt token ids in an answer; None where there is
 * none. */
PyObject *prompt_ids(PyObject *module, PyObject *data);

/* loop.c */
void *core_run(void *core);
void core_touch(Slot *slot); /* have the pump's thread look at it */
void core_post(Slot *slot, Kind kind, Outcome outcome, const void *data, size_t size);
void slot_release(Slot *slot);
void slot_send(Slot *slot, const void *data, size_t size); /* the pump's thread; not under the slot's lock */
bool slot_wants_read(const Slot *slot);                    /* under the slot's lock */

/* relay.c, all under the engine's slot's lock */
void relay_feed(Slot *engine, const char *data, size_t size);
void relay_finish(Slot *engine, Outcome outcome, const void *data, size_t size);
void relay_unfeed(Slot *client, const Slot *engine); /* under neither's lock, or the engine's */
void relay_free(Relay *relay);

#endif
