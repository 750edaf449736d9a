// Package http1 reads just as much HTTP/1.1 as both ends of a benchmark on loopback need, and copies as little as it can.
package http1

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
)

// Head is what matters of a request's or an answer's head. First is the request line or status line.
type Head struct {
	First     []byte
	RequestID string
	Length    int64 // -1: none given
	Chunked   bool
	Close     bool
}

var errLine = errors.New("http1: malformed head")

// ReadHead reads up to the empty line.
func ReadHead(r *bufio.Reader, h *Head) error {
	*h = Head{First: h.First[:0], Length: -1}
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			if len(h.First) == 0 {
				return errLine
			}
			return nil
		}
		if len(h.First) == 0 {
			h.First = append(h.First, line...)
		} else if err := h.field(line); err != nil {
			return err
		}
	}
}

func (h *Head) field(line []byte) error {
	colon := bytes.IndexByte(line, ':')
	if colon < 0 {
		return errLine
	}
	value := bytes.TrimSpace(line[colon+1:])
	// By length first: a benchmark reads millions of these.
	switch name := line[:colon]; {
	case colon == 14 && bytes.EqualFold(name, []byte("content-length")):
		length, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil {
			return errLine
		}
		h.Length = length
	case colon == 17 && bytes.EqualFold(name, []byte("transfer-encoding")):
		h.Chunked = bytes.EqualFold(value, []byte("chunked"))
	case colon == 10 && bytes.EqualFold(name, []byte("connection")):
		h.Close = bytes.EqualFold(value, []byte("close"))
	case colon == 12 && bytes.EqualFold(name, []byte("x-request-id")):
		h.RequestID = string(value)
	}
	return nil
}

// Body calls take with each piece of a body as the socket delivered it; nothing is kept after take returns.
func Body(r *bufio.Reader, h *Head, take func([]byte) error) error {
	if h.Chunked {
		return chunks(r, take)
	}
	return pieces(r, h.Length, take)
}

func chunks(r *bufio.Reader, take func([]byte) error) error {
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		size, err := strconv.ParseInt(string(bytes.TrimRight(line, "\r\n")), 16, 64)
		if err != nil {
			return errLine
		}
		if err := pieces(r, size, take); err != nil {
			return err
		}
		if _, err := r.Discard(2); err != nil {
			return err
		}
		if size == 0 {
			return nil
		}
	}
}

func pieces(r *bufio.Reader, left int64, take func([]byte) error) error {
	for left > 0 {
		if _, err := r.Peek(1); err != nil {
			if err == io.EOF {
				return io.ErrUnexpectedEOF
			}
			return err
		}
		piece, _ := r.Peek(int(min(int64(r.Buffered()), left)))
		if err := take(piece); err != nil {
			return err
		}
		left -= int64(len(piece))
		r.Discard(len(piece))
	}
	return nil
}
