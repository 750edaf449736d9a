package main

import (
	"bytes"
	"strconv"
	"time"
)

// answer reads one answer as it comes: counts a stream's events, and compares every word with what the engine's rule
// (its answer.go) makes of the prompt.
type answer struct {
	seed, next int
	streamed   bool
	body       []byte // of an answer that is no stream, or of a stream the line that has begun
	done       bool
	wrong      string
	code       string // of an error
	onEvent    func(time.Time)
}

func (a *answer) take(piece []byte, at time.Time) {
	if !a.streamed {
		a.body = append(a.body, piece...)
		return
	}
	for {
		end := bytes.IndexByte(piece, '\n')
		if end < 0 {
			a.body = append(a.body, piece...)
			return
		}
		if len(a.body) > 0 {
			a.body = append(a.body, piece[:end]...)
			a.line(a.body, at)
			a.body = a.body[:0]
		} else {
			a.line(piece[:end], at)
		}
		piece = piece[end+1:]
	}
}

func (a *answer) line(line []byte, at time.Time) {
	switch {
	case len(line) == 0:
	case a.done || a.code != "":
		a.wrong = "something after the end"
	case bytes.Equal(line, []byte("data: [DONE]")):
		a.done = true
	case bytes.HasPrefix(line, []byte(`data: {"error"`)):
		a.code = errorCode(line)
	case bytes.HasPrefix(line, []byte("data: ")):
		if words := contentOf(line); len(words) > 0 {
			a.check(words)
			a.onEvent(at)
		}
	default:
		a.wrong = "a line that is no data"
	}
}

// check compares words of the answer's text, in order.
func (a *answer) check(words []byte) {
	for len(words) > 0 {
		expected := strconv.AppendInt([]byte(" w"), int64(200+(a.seed+a.next)%1000), 10)
		if !bytes.HasPrefix(words, expected) {
			a.wrong = "wrong text"
			return
		}
		a.next++
		words = words[len(expected):]
	}
}

// outcome: "ok", or what is the matter with an answer that has ended properly as HTTP.
func (a *answer) outcome(status int) string {
	if status != 200 {
		return "error " + errorCode(a.body)
	}
	if !a.streamed {
		a.check(contentOf(a.body))
		a.done = true
	}
	switch {
	case a.wrong != "":
		return a.wrong
	case a.code != "":
		return "error event " + a.code
	case !a.done:
		return "cut without an error"
	case a.next != *tokens:
		return "wrong length"
	}
	return "ok"
}

func contentOf(chunk []byte) []byte {
	for _, key := range []string{`"text":"`, `"content":"`} {
		if _, after, found := bytes.Cut(chunk, []byte(key)); found {
			words, _, _ := bytes.Cut(after, []byte{'"'})
			return words
		}
	}
	return nil
}

func errorCode(body []byte) string {
	if _, after, found := bytes.Cut(body, []byte(`"code":`)); found {
		if end := bytes.IndexAny(after, ",}"); end >= 0 {
			return string(bytes.Trim(after[:end], `"`))
		}
	}
	return "without a code"
}
