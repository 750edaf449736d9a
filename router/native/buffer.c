/* Bytes in a row: added at the end, taken from the front. */
#include "pump.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT_ROOM = 4 << 10 }; /* an empty buffer keeps so much for the next bytes */

void *need(void *memory) {
    if (!memory) {
        fputs("sunfleet_router: out of memory\n", stderr);
        abort();
    }
    return memory;
}

void buffer_add(Buffer *buffer, const void *data, size_t size) {
    if (buffer->start && buffer->end + size > buffer->room) {
        memmove(buffer->data, buffer_at(buffer), buffer_size(buffer));
        buffer->end -= buffer->start;
        buffer->start = 0;
    }
    if (buffer->end + size > buffer->room) {
        size_t room = buffer->room ? buffer->room : 256;
        while (room < buffer->end + size)
            room *= 2;
        buffer->data = need(realloc(buffer->data, room));
        buffer->room = room;
    }
    if (size)
        memcpy(buffer->data + buffer->end, data, size);
    buffer->end += size;
}

void buffer_take(Buffer *buffer, size_t size) {
    buffer->start += size;
    if (buffer->start < buffer->end)
        return;
    buffer->start = buffer->end = 0;
    if (buffer->room > KEPT_ROOM)
        buffer_free(buffer);
}

void buffer_set(Buffer *buffer, const void *data, size_t size) {
    buffer->start = buffer->end = 0;
    buffer_add(buffer, data, size);
}

void buffer_free(Buffer *buffer) {
    free(buffer->data);
    *buffer = (Buffer){0};
}
