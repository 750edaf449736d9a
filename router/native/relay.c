/* A decode stream between two sockets: the engine's chunks are taken apart, whole events go to the client, progress lines
 * and the engine's error event do not. The same as engines/relay.py and bodies/sse.py, which the tests hold it to.
 */
#define _GNU_SOURCE
#include "pump.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char PROGRESS[] = ": sun ";
static const char ERROR_EVENT[] = "data: {\"error\"";
enum { PROGRESS_SIZE = sizeof PROGRESS - 1, ERROR_SIZE = sizeof ERROR_EVENT - 1 };
enum { MOST_CHUNK = 1 << 28 }; /* bytes of one chunk; more is no event */

/* Where in the chunked body the next byte is. A relay begins between two chunks. */
enum { SIZE, SIZE_MORE, EXTENSION, SIZE_LF, BODY, BODY_CR, BODY_LF, TRAILER, TRAILER_LINE, TRAILER_LF, LAST_LF, OVER };

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The state after one byte that is not of a chunk's body; -1 for one that must not be there. */
static int after(Relay *relay, char c) {
    switch (relay->state) {
    case SIZE:
    case SIZE_MORE: {
        int value = hex_digit(c);
        if (value >= 0) {
            relay->left = relay->left * 16 + (size_t)value;
            return relay->left > MOST_CHUNK ? -1 : SIZE_MORE;
        }
        if (relay->state == SIZE)
            return -1;
        return c == '\r' ? SIZE_LF : c == ';' ? EXTENSION : -1;
    }
    case EXTENSION:
        return c == '\r' ? SIZE_LF : c == '\n' ? -1 : EXTENSION;
    case SIZE_LF:
        return c != '\n' ? -1 : relay->left ? BODY : TRAILER;
    case BODY_CR:
        return c == '\r' ? BODY_LF : -1;
    case BODY_LF:
        return c == '\n' ? SIZE : -1;
    case TRAILER:
        return c == '\r' ? LAST_LF : c == '\n' ? -1 : TRAILER_LINE;
    case TRAILER_LINE:
        return c == '\r' ? TRAILER_LF : c == '\n' ? -1 : TRAILER_LINE;
    case TRAILER_LF:
        return c == '\n' ? TRAILER : -1;
    case LAST_LF:
        return c == '\n' ? OVER : -1;
    default:
        return -1; /* bytes after the end */
    }
}

/* Add the chunks' bodies to the begun events; false for what is no chunk. */
static bool unchunk(Relay *relay, const char *data, size_t size) {
    size_t at = 0;
    while (at < size) {
        if (relay->state == BODY) {
            size_t part = size - at < relay->left ? size - at : relay->left;
            buffer_add(&relay->events, data + at, part);
            at += part;
            relay->left -= part;
            if (!relay->left)
                relay->state = BODY_CR;
            continue;
        }
        int next = after(relay, data[at++]);
        if (next < 0)
            return false;
        relay->state = next;
    }
    return true;
}

/* Where the last whole event ends; 0 when there is none. Lines end in LF or in CRLF. */
static size_t whole(const char *data, size_t size) {
    for (size_t end = size; end >= 2; end--) {
        const char *lf = memrchr(data, '\n', end);
        if (!lf)
            return 0;
        end = (size_t)(lf - data) + 1;
        if (end >= 2 && data[end - 2] == '\n')
            return end;
        if (end >= 4 && !memcmp(data + end - 4, "\r\n\r\n", 4))
            return end;
    }
    return 0;
}

/* Whole events without their progress lines, into `kept`; the lines into `lines`. */
static void take_progress(const char *data, size_t size, Buffer *kept, Buffer *lines) {
    kept->start = kept->end = 0;
    const char *end = data + size;
    while (data < end) {
        const char *lf = memchr(data, '\n', (size_t)(end - data));
        const char *next = lf ? lf + 1 : end;
        bool progress = next - data >= PROGRESS_SIZE && !memcmp(data, PROGRESS, PROGRESS_SIZE);
        buffer_add(progress ? lines : kept, data, (size_t)(next - data));
        data = next;
    }
}

/* How many tokens some progress lines tell: ids with commas between them, up to a blank or the line's end. A line that holds
 * something else counts as many, as in sse.py. */
static size_t told(const char *line, size_t size) {
    size_t count = 0;
    for (const char *end = line + size; line < end;) {
        const char *lf = memchr(line, '\n', (size_t)(end - line));
        const char *stop = lf ? lf : end;
        for (line += PROGRESS_SIZE; line < stop && *line != ' ' && *line != '\r'; line++) {
            if (*line >= '0' && *line <= '9')
                count += line[-1] == ' ' || line[-1] == ',';
            else if (*line != ',')
                return SIZE_MAX;
        }
        line = stop + 1;
    }
    return count;
}

/* Tell Python, once, that so many tokens were told as it waits for. */
static void look_further(Slot *engine, size_t from) {
    Relay *relay = engine->relay;
    if (!relay->awaited || from == buffer_size(&relay->lines))
        return;
    size_t count = told(buffer_at(&relay->lines) + from, buffer_size(&relay->lines) - from);
    relay->awaited = count < relay->awaited ? relay->awaited - count : 0;
    if (!relay->awaited)
        core_post(engine, FURTHER, 0, NULL, 0);
}

static bool is_space(const char *data, size_t size) {
    for (size_t at = 0; at < size; at++)
        if (!strchr(" \t\n\r\v\f", data[at]) || !data[at])
            return false;
    return true;
}

static void to_client(Slot *engine, const char *data, size_t size) {
    Relay *relay = engine->relay;
    if (!relay->chunked) {
        slot_send(relay->client, data, size);
        return;
    }
    Buffer *framed = &engine->core->framed;
    char head[24];
    framed->start = framed->end = 0;
    buffer_add(framed, head, (size_t)snprintf(head, sizeof head, "%zx\r\n", size));
    buffer_add(framed, data, size);
    buffer_add(framed, "\r\n", 2);
    slot_send(relay->client, buffer_at(framed), buffer_size(framed));
}

static void pass_on(Slot *engine, size_t size) {
    Relay *relay = engine->relay;
    Buffer *kept = &engine->core->kept;
    size_t lines = buffer_size(&relay->lines);
    take_progress(buffer_at(&relay->events), size, kept, &relay->lines);
    buffer_take(&relay->events, size);
    look_further(engine, lines);
    if (!kept->end)
        return;
    const char *error = memmem(kept->data, kept->end, ERROR_EVENT, ERROR_SIZE);
    size_t good = error ? (size_t)(error - kept->data) : kept->end;
    if (good && !is_space(kept->data, good)) {
        buffer_set(&relay->last, kept->data, good);
        to_client(engine, kept->data, good);
    }
    if (error)
        relay_finish(engine, ENGINE_ENDED, error, kept->end - good);
}

void relay_feed(Slot *engine, const char *data, size_t size) {
    Relay *relay = engine->relay;
    relay->activity = engine->core->now;
    bool framed = unchunk(relay, data, size);
    size_t events = whole(relay->events.data ? buffer_at(&relay->events) : "", buffer_size(&relay->events));
    if (events)
        pass_on(engine, events);
    if (!relay->active)
        return;
    if (!framed)
        relay_finish(engine, relay->state == OVER ? COMPLETE : BROKEN, "more", relay->state == OVER ? 4 : 0);
    else if (relay->state == OVER)
        relay_finish(engine, COMPLETE, NULL, 0);
    else if (buffer_size(&relay->events) > MOST_EVENT)
        relay_finish(engine, TOO_LARGE, NULL, 0);
}

void relay_unfeed(Slot *client, const Slot *engine) {
    pthread_mutex_lock(&client->lock);
    Slot *feeder = client->feeder == engine ? client->feeder : NULL;
    if (feeder)
        client->feeder = NULL;
    pthread_mutex_unlock(&client->lock);
    slot_release(feeder);
}

void relay_finish(Slot *engine, Outcome outcome, const void *data, size_t size) {
    engine->relay->active = false;
    relay_unfeed(engine->relay->client, engine);
    engine->holding = outcome != COMPLETE; /* what else comes is of no use */
    core_post(engine, RELAYED, outcome, data, size);
}

void relay_free(Relay *relay) {
    if (!relay)
        return;
    buffer_free(&relay->events);
    buffer_free(&relay->lines);
    buffer_free(&relay->last);
    slot_release(relay->client);
    free(relay);
}
