package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"sunfleet.dev/bench/router/http1"
)

const filler = "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor "

var errLeft = errors.New("the client left on purpose")

// line is a connection to one server, opened when it is needed and kept.
type line struct {
	address string
	conn    net.Conn
	in      *bufio.Reader
	head    http1.Head
	out     []byte
	at      time.Time // of the last read from the socket
	pause   time.Duration
}

func (l *line) Read(into []byte) (int, error) {
	if l.pause > 0 {
		time.Sleep(l.pause)
	}
	_ = l.conn.SetReadDeadline(time.Now().Add(time.Duration(*patience * 1e9)))
	n, err := l.conn.Read(into)
	l.at = time.Now()
	return n, err
}

func (l *line) open() error {
	if l.conn != nil {
		return nil
	}
	conn, err := net.DialTimeout("tcp", l.address, 5*time.Second)
	if err == nil {
		l.conn, l.in = conn, bufio.NewReaderSize(l, 32<<10)
	}
	return err
}

func (l *line) close() {
	if l.conn != nil {
		_ = l.conn.Close()
		l.conn = nil
	}
}

// ask sends a body and hands the answer's to take; gives the status.
func (l *line) ask(path string, body []byte, take func([]byte) error) (int, error) {
	if err := l.open(); err != nil {
		return 0, fmt.Errorf("no connection: %w", err)
	}
	l.out = append(l.out[:0], "POST "+path+" HTTP/1.1\r\nhost: "+l.address+"\r\ncontent-type: application/json\r\n"...)
	if *key != "" {
		l.out = append(l.out, "authorization: Bearer "+*key+"\r\n"...)
	}
	l.out = append(strconv.AppendInt(append(l.out, "content-length: "...), int64(len(body)), 10), "\r\n\r\n"...)
	if _, err := l.conn.Write(append(l.out, body...)); err != nil {
		return 0, err
	}
	if err := http1.ReadHead(l.in, &l.head); err != nil {
		return 0, err
	}
	status := 0
	if words := bytes.Fields(l.head.First); len(words) > 1 {
		status, _ = strconv.Atoi(string(words[1]))
	}
	if err := http1.Body(l.in, &l.head, take); err != nil {
		return status, err
	}
	if l.head.Close {
		l.close()
	}
	return status, nil
}

// worker is one client.
type worker struct {
	record
	number  int
	front   line
	prefill *line
	prompt  string
	body    []byte
	first   []byte // the prefill leg's answer
}

func newWorker(number int, target, source string) (*worker, error) {
	w := &worker{number: number, record: record{outcomes: map[string]int64{}}}
	w.prompt = strings.Repeat(filler, *size/len(filler)+1)[:max(*size-12, 1)]
	where, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	w.front.address = where.Host
	if source != "" {
		if where, err = url.Parse(source); err != nil {
			return nil, err
		}
		w.prefill = &line{address: where.Host}
	}
	return w, nil
}

func (w *worker) run() {
	for turn := 0; time.Now().Before(to) && (*most == 0 || begun.Add(1) <= *most); turn++ {
		outcome := w.one(*streamed && !(*mixed && turn%2 == 1), *chat && !(*mixed && turn%4 > 1))
		w.outcomes[outcome]++
		if outcome != "ok" {
			w.front.close()
			time.Sleep(5 * time.Millisecond) // no hot loop on what refuses
		}
	}
	w.front.close()
	if w.prefill != nil {
		w.prefill.close()
	}
}

func (w *worker) one(stream, chat bool) string {
	number := int(asked.Add(1))
	path := w.write(number, *tokens, stream, chat)
	leaves := -1
	if rand.Float64() < *leave {
		leaves = rand.IntN(*tokens)
	}
	w.front.pause = 0
	if stream && rand.Float64() < *slow {
		w.front.pause = 20 * time.Millisecond
	}
	began := time.Now()
	if w.prefill != nil {
		if problem := w.firstLeg(number, path, stream, chat); problem != "" {
			return problem
		}
	}
	return w.read(path, number, stream, leaves, began)
}

func (w *worker) write(number, limit int, stream, chat bool) string {
	w.body = append(w.body[:0], `{"model":"`+*model+`",`...)
	path := "/v1/completions"
	if chat {
		path = "/v1/chat/completions"
		w.body = append(w.body, `"messages":[{"role":"user","content":"#`...)
	} else {
		w.body = append(w.body, `"prompt":"#`...)
	}
	w.body = strconv.AppendInt(w.body, int64(number), 10)
	w.body = append(w.body, ' ')
	w.body = append(w.body, w.prompt...)
	w.body = append(w.body, '"')
	if chat {
		w.body = append(w.body, `}]`...)
	}
	w.body = append(w.body, `,"temperature":0,"max_tokens":`...)
	w.body = strconv.AppendInt(w.body, int64(limit), 10)
	w.body = append(w.body, `,"stream":`...)
	w.body = append(strconv.AppendBool(w.body, stream), '}')
	return path
}

// firstLeg makes the prefill leg and puts its hand-over into the decode leg's body.
func (w *worker) firstLeg(number int, path string, stream, chat bool) string {
	w.write(number, 1, false, chat)
	w.body = append(w.body[:len(w.body)-1], `,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false}}`...)
	w.first = w.first[:0]
	status, err := w.prefill.ask(path, w.body, func(p []byte) error { w.first = append(w.first, p...); return nil })
	at := bytes.Index(w.first, []byte(`"kv_transfer_params":{`))
	if err != nil || status != 200 || at < 0 {
		return "prefill leg failed"
	}
	w.write(number, *tokens, stream, chat)
	w.body = append(append(w.body[:len(w.body)-1], ','), w.first[at:]...)
	return ""
}

func (w *worker) read(path string, number int, stream bool, leaves int, began time.Time) string {
	var previous time.Time
	var ttft, events = time.Duration(0), 0
	a := &answer{seed: number, streamed: stream}
	a.onEvent = func(at time.Time) {
		events++
		if inWindow(at) {
			w.chunks++
			if !previous.IsZero() {
				w.gap = append(w.gap, at.Sub(previous))
			} else {
				ttft = at.Sub(began)
				w.ttft = append(w.ttft, ttft)
			}
		}
		previous = at
	}
	if conn := w.front.conn; leaves >= 0 && !stream && conn != nil {
		defer time.AfterFunc(time.Duration(leaves)*time.Millisecond, func() { _ = conn.Close() }).Stop()
	}
	status, err := w.front.ask(path, w.body, func(piece []byte) error {
		a.streamed = stream && bytes.HasPrefix(w.front.head.First, []byte("HTTP/1.1 200"))
		a.take(piece, w.front.at)
		if stream && leaves >= 0 && events > leaves {
			return errLeft
		}
		return nil
	})
	ended := w.front.at
	if err == nil && status == 200 && inWindow(ended) {
		w.requests++
		w.total = append(w.total, ended.Sub(began))
	}
	return w.judge(a, status, err, leaves >= 0)
}

func (w *worker) judge(a *answer, status int, err error, leaves bool) string {
	switch {
	case err == nil:
		return a.outcome(status)
	case leaves:
		return "left"
	case a.code != "":
		return "error event " + a.code
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "stuck"
	}
	return "cut without an error"
}
