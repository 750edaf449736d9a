// Command engine plays an engine pod for the router's benchmark and soak: the two-leg API of sunfleet_api.wire, vLLM's
// shapes of answers, and faults on request. It costs a few microseconds for each token, so that a router is what is
// measured. Every event of a stream is a write of its own, as engines do it.
//
//	engine -port 8100 -role prefill|decode
//
// GET /set?tpot_ms=20&die=0.01 changes its pace and its faults, GET /stats counts what it did.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"sunfleet.dev/bench/router/http1"
)

var (
	engineID string
	role     string
	numbers  atomic.Uint64
	date     atomic.Pointer[string]
	stats    struct {
		Prefill, Decode, Plain, Resumed, Refused, Failed, Complete, Left, Connections, Running, Held, Released atomic.Int64
	}
)

// served is one connection; its buffers are used again for every request on it.
type served struct {
	conn    net.Conn
	in      *bufio.Reader
	head    http1.Head
	body    []byte
	out     []byte
	ask     ask
	request string
}

func main() {
	port := flag.Int("port", 8100, "port on 127.0.0.1")
	flag.StringVar(&role, "role", "decode", "prefill or decode")
	flag.Parse()
	engineID = fmt.Sprintf("mock-%s-%d", role, *port)
	go func() {
		for ; ; time.Sleep(time.Second) {
			now := time.Now().UTC().Format(http.TimeFormat)
			date.Store(&now)
		}
	}()
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		log.Fatal(err)
	}
	for date.Load() == nil {
		time.Sleep(time.Millisecond)
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go serve(conn)
	}
}

func serve(conn net.Conn) {
	stats.Connections.Add(1)
	defer stats.Connections.Add(-1)
	defer conn.Close()
	s := &served{conn: conn, in: bufio.NewReaderSize(conn, 32<<10)}
	for {
		if err := http1.ReadHead(s.in, &s.head); err != nil {
			return
		}
		s.body = s.body[:0]
		if err := http1.Body(s.in, &s.head, func(p []byte) error { s.body = append(s.body, p...); return nil }); err != nil {
			return
		}
		if err := s.route(); err != nil || s.head.Close {
			return
		}
	}
}

func (s *served) route() error {
	words := bytes.Fields(s.head.First)
	if len(words) != 3 {
		return fmt.Errorf("malformed request line")
	}
	target, err := url.ParseRequestURI(string(words[1]))
	if err != nil {
		return err
	}
	switch target.Path {
	case "/v1/completions", "/v1/chat/completions":
		return s.generate(target.Path == "/v1/chat/completions")
	case "/sunfleet/info":
		return s.reply(200, infoJSON())
	case "/sunfleet/release":
		stats.Released.Add(1)
		stats.Held.Add(-1)
		return s.reply(200, []byte("{}"))
	case "/health":
		return s.reply(200, []byte("{}"))
	case "/v1/models":
		return s.reply(200, []byte(`{"object":"list","data":[{"id":"mock","object":"model","owned_by":"vllm","max_model_len":131072}]}`))
	case "/stats":
		return s.reply(200, statsJSON())
	case "/set":
		if err := set(target.Query()); err != nil {
			return s.refuse(400, "bad_setting", err.Error())
		}
		return s.reply(200, []byte("{}"))
	}
	return s.refuse(404, "not_found", "no such path")
}

func (s *served) generate(chat bool) error {
	stats.Running.Add(1)
	defer stats.Running.Add(-1)
	if s.request = s.head.RequestID; s.request == "" {
		s.request = strconv.FormatUint(numbers.Add(1), 16)
	}
	if !parse(s.body, chat, &s.ask) {
		return s.refuse(400, "bad_request", "the body has no prompt")
	}
	switch t := &s.ask.transfer; {
	case t.RemoteDecode:
		stats.Prefill.Add(1)
	case t.RemotePrefill:
		stats.Decode.Add(1)
		if t.EngineID == "" || t.BlockIDs == nil || t.RequestID == "" {
			return s.refuse(400, "handover_incomplete", "the hand-over is not complete")
		}
		if t.Told > 0 {
			stats.Resumed.Add(1)
		}
		for index, token := range t.Output {
			if token != tokenAt(s.ask.seed, index) {
				return s.refuse(400, "wrong_output", fmt.Sprintf("output token %d is %d", index, token))
			}
		}
	default:
		stats.Plain.Add(1)
	}
	return s.answer(drawFault(s.ask.Stream, s.ask.MaxTokens))
}

func (s *served) model() string {
	if s.ask.transfer.Model != "" {
		return s.ask.transfer.Model
	}
	return s.ask.Model
}

// answer gives the whole answer or the stream, as far as the fault lets it.
func (s *served) answer(f fault) error {
	now, pace := time.Now(), current.Load()
	if stop, err := s.failEarly(f); stop {
		return err
	}
	if s.ask.Stream {
		return s.stream(f, pace, now)
	}
	time.Sleep(pace.ttft + time.Duration(s.ask.MaxTokens-1)*pace.tpot)
	s.body = s.ask.appendWhole(s.body[:0], s.request, s.model(), now) // the ask was read: its body is room for the answer
	if s.ask.transfer.RemoteDecode {
		stats.Held.Add(1)
	}
	return s.complete(s.reply(200, s.body))
}

func (s *served) complete(err error) error {
	if err != nil {
		stats.Left.Add(1)
		return err
	}
	stats.Complete.Add(1)
	return nil
}

func (s *served) stream(f fault, pace *pace, now time.Time) error {
	s.appendHead(200, "text/event-stream; charset=utf-8", -1)
	frame := s.ask.frame(s.request, now, s.model())
	event := make([]byte, 0, 512)
	next := now.Add(pace.ttft)
	for index := s.ask.transfer.Told; index < s.ask.MaxTokens; index++ {
		time.Sleep(time.Until(next))
		next = next.Add(pace.tpot)
		token := tokenAt(s.ask.seed, index)
		event = event[:0]
		if s.ask.transfer.Progress {
			event = append(strconv.AppendInt(append(event, ": sun "...), int64(token), 10), '\n')
		}
		event = frame.appendEvent(event, token, index == s.ask.MaxTokens-1)
		if index == f.at {
			return s.failLate(f, event)
		}
		if err := s.write(event); err != nil {
			return s.complete(err)
		}
	}
	if err := s.write([]byte("data: [DONE]\n\n")); err != nil {
		return s.complete(err)
	}
	_, err := s.conn.Write([]byte("0\r\n\r\n"))
	return s.complete(err)
}

// write sends what s.out holds and one chunk.
func (s *served) write(chunk []byte) error {
	s.out = strconv.AppendInt(s.out, int64(len(chunk)), 16)
	s.out = append(append(append(s.out, "\r\n"...), chunk...), "\r\n"...)
	_, err := s.conn.Write(s.out)
	s.out = s.out[:0]
	return err
}

func (s *served) appendHead(status int, kind string, length int) {
	s.out = append(s.out[:0], fmt.Sprintf("HTTP/1.1 %d %s\r\ndate: %s\r\nserver: uvicorn\r\n", status, http.StatusText(status), *date.Load())...)
	s.out = append(s.out, "content-type: "+kind+"\r\n"...)
	if length < 0 {
		s.out = append(s.out, "transfer-encoding: chunked\r\n\r\n"...)
		return
	}
	s.out = append(strconv.AppendInt(append(s.out, "content-length: "...), int64(length), 10), "\r\n\r\n"...)
}

func (s *served) reply(status int, body []byte) error {
	s.appendHead(status, "application/json", len(body))
	s.out = append(s.out, body...)
	_, err := s.conn.Write(s.out)
	return err
}

func (s *served) refuse(status int, code, message string) error {
	stats.Refused.Add(1)
	body, _ := json.Marshal(map[string]any{"error": map[string]any{"message": message, "type": "server_error", "param": nil, "code": code}})
	return s.reply(status, body)
}

// wait returns when the client leaves, as a hanging engine's connection ends.
func (s *served) wait() error {
	stats.Failed.Add(1)
	_, err := io.Copy(io.Discard, s.conn)
	return fmt.Errorf("the client left: %w", err)
}

func infoJSON() []byte {
	return fmt.Appendf(nil, `{"role":%q,"kv_capacity_tokens":1000000000,"block_size":16,"max_model_len":131072,"kv_fingerprint":"bench","engine_version":"mock"}`, role)
}

func statsJSON() []byte {
	body, _ := json.Marshal(map[string]int64{
		"prefill": stats.Prefill.Load(), "decode": stats.Decode.Load(), "plain": stats.Plain.Load(), "resumed": stats.Resumed.Load(),
		"refused": stats.Refused.Load(), "failed": stats.Failed.Load(), "complete": stats.Complete.Load(), "left": stats.Left.Load(),
		"connections": stats.Connections.Load(), "running": stats.Running.Load(), "held": stats.Held.Load(), "released": stats.Released.Load(),
	})
	return body
}
