/* The pump's thread: waits for sockets, reads what comes, writes what Python or a relay has for them. */
#include "pump.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { AT_ONCE = 256 };

static void ring(int eventfd) {
    uint64_t one = 1;
    while (write(eventfd, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

void core_touch(Slot *slot) {
    Core *core = slot->core;
    if (atomic_load(&core->stopping))
        return; /* whoever stops it closes everything */
    pthread_mutex_lock(&core->lock);
    bool wake = core->sleeping;
    if (!slot->dirty) {
        slot->dirty = true;
        atomic_fetch_add(&slot->references, 1);
        slot->next_dirty = core->dirty;
        core->dirty = slot;
        core->sleeping = false;
    }
    pthread_mutex_unlock(&core->lock);
    if (wake)
        ring(core->wake);
}

void core_post(Slot *slot, Kind kind, Outcome outcome, const void *data, size_t size) {
    Core *core = slot->core;
    Item *item = need(malloc(sizeof *item + size));
    *item = (Item){.slot = slot, .kind = kind, .outcome = outcome, .size = size};
    if (size)
        memcpy(item->data, data, size);
    atomic_fetch_add(&slot->references, 1);
    pthread_mutex_lock(&core->lock);
    *core->last = item;
    core->last = &item->next;
    bool must_ring = !core->rung;
    core->rung = true;
    pthread_mutex_unlock(&core->lock);
    if (must_ring)
        ring(core->bell);
}

void slot_release(Slot *slot) {
    if (!slot || atomic_fetch_sub(&slot->references, 1) > 1)
        return;
    relay_free(slot->relay);
    buffer_free(&slot->out);
    buffer_free(&slot->sending);
    pthread_mutex_destroy(&slot->lock);
    pthread_mutex_destroy(&slot->writing);
    free(slot);
}

bool slot_wants_read(const Slot *slot) {
    if (slot->paused || slot->holding || slot->closing || slot->gone || slot->undelivered >= READ_AHEAD)
        return false;
    return !(slot->relay && slot->relay->active && atomic_load(&slot->relay->client->blocked));
}

static bool relays(const Slot *slot) { return slot->relay && slot->relay->active; }

static void tell(const Slot *slot, int epoll, int operation, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = (void *)slot};
    epoll_ctl(epoll, operation, slot->fd, &event);
}

static void arm(Slot *slot, bool reads, bool writes) {
    Core *core = slot->core;
    bool on_beat = relays(slot), moves = slot->on_beat != on_beat;
    if (slot->gone || (!moves && slot->reads_armed == reads && slot->writes_armed == writes))
        return;
    tell(slot, core->epoll, EPOLL_CTL_MOD, (reads && !on_beat ? EPOLLIN : 0) | (writes ? EPOLLOUT : 0));
    if (on_beat)
        tell(slot, core->beat, moves ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, reads ? EPOLLIN : 0);
    else if (moves)
        tell(slot, core->beat, EPOLL_CTL_DEL, 0);
    slot->on_beat = on_beat;
    slot->reads_armed = reads;
    slot->writes_armed = writes;
}

/* The end of a socket, under its lock. Python hears of it, and of a relay that it ends. */
static void lose(Slot *slot) {
    Core *core = slot->core;
    if (slot->gone)
        return;
    if (slot->relay && slot->relay->active)
        relay_finish(slot, CUT, NULL, 0);
    pthread_mutex_lock(&slot->writing);
    slot->gone = true;
    atomic_store(&slot->blocked, false);
    close(slot->fd);
    slot->fd = -1;
    buffer_free(&slot->out);
    buffer_free(&slot->sending);
    pthread_mutex_unlock(&slot->writing);
    if (slot->feeder) {
        core_touch(slot->feeder); /* whoever fed it is not held back by it any more */
        slot_release(slot->feeder);
        slot->feeder = NULL;
    }
    core_post(slot, LOST, 0, NULL, 0);
    pthread_mutex_lock(&core->lock);
    *(slot->earlier ? &slot->earlier->later : &core->open) = slot->later;
    if (slot->later)
        slot->later->earlier = slot->earlier;
    pthread_mutex_unlock(&core->lock);
    slot->next_lost = core->lost;
    core->lost = slot;
}

/* The list's references of what was lost. Only between two rounds: an event of this one may still name the slot. */
static void bury(Core *core) {
    for (Slot *slot = core->lost; slot;) {
        Slot *next = slot->next_lost;
        slot_release(slot);
        slot = next;
    }
    core->lost = NULL;
}

/* As much of what waits as the socket takes, under `writing`: how much is left; -1 when the socket is at its end. */
static ssize_t send_waiting(Slot *slot) {
    for (;;) {
        if (!buffer_size(&slot->sending)) {
            if (!buffer_size(&slot->out))
                return 0;
            Buffer empty = slot->sending;
            slot->sending = slot->out;
            slot->out = empty;
        }
        ssize_t sent = send(slot->fd, buffer_at(&slot->sending), buffer_size(&slot->sending), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            buffer_take(&slot->sending, (size_t)sent);
        } else if (errno == EAGAIN) {
            return (ssize_t)(buffer_size(&slot->sending) + buffer_size(&slot->out));
        } else if (errno != EINTR) {
            return -1;
        }
    }
}

/* Write what waits, and what comes on top of it, under the slot's lock; false when the socket is at its end. */
static bool flush(Slot *slot, const void *more, size_t size) {
    pthread_mutex_lock(&slot->writing);
    buffer_add(&slot->out, more, size);
    ssize_t waits = send_waiting(slot);
    pthread_mutex_unlock(&slot->writing);
    if (waits < 0)
        return false;
    arm(slot, slot->reads_armed, waits > 0);
    if (waits > HIGH_WATER && !atomic_load(&slot->blocked)) {
        atomic_store(&slot->blocked, true);
        core_post(slot, PAUSE, 0, NULL, 0);
    } else if (waits <= LOW_WATER && atomic_load(&slot->blocked)) {
        atomic_store(&slot->blocked, false);
        core_post(slot, ROOM, 0, NULL, 0);
        if (slot->feeder)
            core_touch(slot->feeder);
    }
    return true;
}

void slot_send(Slot *slot, const void *data, size_t size) {
    pthread_mutex_lock(&slot->lock);
    if (!slot->gone && !slot->aborting && !flush(slot, data, size))
        lose(slot);
    pthread_mutex_unlock(&slot->lock);
}

/* Whether it is to be closed and nothing waits, under the slot's lock: Python adds no more once it wants that. */
static bool all_said(const Slot *slot) {
    return slot->closing && !buffer_size(&slot->sending) && !buffer_size(&slot->out);
}

static void look_at(Slot *slot) {
    pthread_mutex_lock(&slot->lock);
    if (!slot->gone) {
        if (slot->aborting || (!slot->writes_armed && !flush(slot, NULL, 0)) || all_said(slot))
            lose(slot);
        else if (slot_wants_read(slot))
            arm(slot, true, slot->writes_armed);
    }
    pthread_mutex_unlock(&slot->lock);
}

/* One read, under the slot's lock. */
static void take(Slot *slot) {
    Core *core = slot->core;
    ssize_t size = recv(slot->fd, core->scratch, SCRATCH, MSG_DONTWAIT);
    if (size > 0) {
        if (slot->relay && slot->relay->active) {
            relay_feed(slot, core->scratch, (size_t)size);
            return;
        }
        slot->undelivered += (size_t)size;
        slot->holding = slot->stepping;
        core_post(slot, DATA, 0, core->scratch, (size_t)size);
    } else if (size == 0 || (errno != EAGAIN && errno != EINTR)) {
        lose(slot);
    }
}

static void on_event(Slot *slot, uint32_t events) {
    bool over = events & (EPOLLERR | EPOLLHUP); /* cannot be disarmed, so what is left is read whoever wants it */
    pthread_mutex_lock(&slot->lock);
    if (!slot->gone && (events & EPOLLOUT)) {
        if (!flush(slot, NULL, 0) || all_said(slot))
            lose(slot);
    }
    if (!slot->gone && (events & (EPOLLIN | EPOLLERR | EPOLLHUP))) {
        bool wanted = slot_wants_read(slot);
        if (wanted || over)
            take(slot);
        if (!wanted || slot->on_beat != relays(slot))
            arm(slot, slot_wants_read(slot), slot->writes_armed); /* only now: most who hold go on before anything comes */
    }
    pthread_mutex_unlock(&slot->lock);
}

/* What Python has touched; whether to wait for sockets afterwards, or only to look at them. */
static bool look_at_dirty(Core *core) {
    pthread_mutex_lock(&core->lock);
    Slot *slot = core->dirty;
    core->dirty = NULL;
    core->sleeping = !slot;
    bool none = !slot;
    Slot *list = NULL;
    while (slot) { /* first come, first served; a slot that is touched from here on is in the new list too */
        Slot *next = slot->next_dirty;
        slot->dirty = false;
        slot->next_look = list;
        list = slot;
        slot = next;
    }
    pthread_mutex_unlock(&core->lock);
    while (list) {
        Slot *next = list->next_look;
        look_at(list);
        slot_release(list);
        list = next;
    }
    return none;
}

/* Read the relayed streams that have something. While there are such, the next look is a beat later. */
static void look_at_streams(Core *core) {
    struct epoll_event events[AT_ONCE];
    int count = epoll_wait(core->beat, events, AT_ONCE, 0);
    for (int at = 0; at < count; at++)
        on_event(events[at].data.ptr, events[at].events);
    if (count > 0) {
        core->next_beat = core->now + (count < AT_ONCE ? BEAT_US * 1e-6 : 0);
        return;
    }
    core->next_beat = 0;
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = core};
    epoll_ctl(core->epoll, EPOLL_CTL_MOD, core->beat, &event);
}

static double clock_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* As epoll_wait until the next beat, which whole milliseconds would make late; for ever where none is due. */
static int wait_for_beat(const Core *core, struct epoll_event *events) {
    if (core->next_beat <= 0)
        return epoll_wait(core->epoll, events, AT_ONCE, -1);
    double left = core->next_beat - clock_seconds();
    struct timespec time = {.tv_nsec = left > 0 ? (long)(left * 1e9) : 0}; /* a beat is far less than a second */
#ifdef SYS_epoll_pwait2
    long count = syscall(SYS_epoll_pwait2, core->epoll, events, AT_ONCE, &time, NULL, 0);
    if (count >= 0 || errno != ENOSYS)
        return (int)count;
#endif
    return epoll_wait(core->epoll, events, AT_ONCE, (int)((time.tv_nsec + 999999) / 1000000));
}

void *core_run(void *given) {
    Core *core = given;
    struct epoll_event events[AT_ONCE];
    while (!atomic_load(&core->stopping)) {
        bool wait = look_at_dirty(core);
        int count = wait ? wait_for_beat(core, events) : epoll_wait(core->epoll, events, AT_ONCE, 0);
        pthread_mutex_lock(&core->lock);
        core->sleeping = false;
        pthread_mutex_unlock(&core->lock);
        core->now = clock_seconds();
        bool beat = core->next_beat > 0 && core->now >= core->next_beat;
        for (int at = 0; at < count; at++) {
            if (events[at].data.ptr == core)
                beat = true;
            else if (events[at].data.ptr) /* else it was woken up */
                on_event(events[at].data.ptr, events[at].events);
        }
        if (beat)
            look_at_streams(core);
        bury(core);
    }
    look_at_dirty(core);
    bury(core);
    return NULL;
}
