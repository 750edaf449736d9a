package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"
)

// pace is how fast the engine answers, and the probability of each fault for one request.
type pace struct {
	ttft, tpot time.Duration
	refuse     float64 // 503 before anything else
	reset      float64 // the connection is reset before the answer's head
	mute       float64 // no head ever comes
	die        float64 // a stream's connection is reset in the middle of an event
	hang       float64 // a stream falls silent
	preempt    float64 // a stream ends with the engine's own error event
}

var current atomic.Pointer[pace]

func init() { current.Store(&pace{}) }

func set(query url.Values) error {
	next := *current.Load()
	shares := map[string]*float64{
		"refuse": &next.refuse, "reset": &next.reset, "mute": &next.mute, "die": &next.die, "hang": &next.hang, "preempt": &next.preempt,
	}
	for name, values := range query {
		given, err := strconv.ParseFloat(values[0], 64)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		switch share, known := shares[name]; {
		case name == "ttft_ms":
			next.ttft = time.Duration(given * 1e6)
		case name == "tpot_ms":
			next.tpot = time.Duration(given * 1e6)
		case known:
			*share = given
		default:
			return fmt.Errorf("%s: unknown", name)
		}
	}
	current.Store(&next)
	return nil
}

// fault is what befalls one request; at is the event of a stream at which it does, -1 for none.
type fault struct {
	kind string
	at   int
}

func drawFault(stream bool, tokens int) fault {
	p, draw := current.Load(), rand.Float64()
	early := []struct {
		kind  string
		share float64
	}{{"refuse", p.refuse}, {"reset", p.reset}, {"mute", p.mute}}
	for _, one := range early {
		if draw -= one.share; draw < 0 {
			return fault{one.kind, -1}
		}
	}
	late := []struct {
		kind  string
		share float64
	}{{"die", p.die}, {"hang", p.hang}, {"preempt", p.preempt}}
	for _, one := range late {
		if draw -= one.share; draw < 0 && stream {
			return fault{one.kind, rand.IntN(tokens)}
		}
	}
	return fault{at: -1}
}

// failEarly acts out a fault before the answer; whether it did.
func (s *served) failEarly(f fault) (bool, error) {
	switch f.kind {
	case "refuse":
		return true, s.refuse(503, "sun_draining", "this engine takes nothing at the moment")
	case "reset":
		return true, s.reset()
	case "mute":
		return true, s.wait()
	}
	return false, nil
}

// failLate acts out a fault at event, of which a dying engine still sends a half.
func (s *served) failLate(f fault, event []byte) error {
	switch f.kind {
	case "die":
		s.out = append(s.out, fmt.Sprintf("%x\r\n%s", len(event), event[:len(event)/2])...)
		_, _ = s.conn.Write(s.out)
		return s.reset()
	case "hang":
		if len(s.out) > 0 {
			_, _ = s.conn.Write(s.out)
		}
		return s.wait()
	}
	stats.Failed.Add(1)
	if err := s.write([]byte("data: {\"error\":{\"message\":\"preempted\",\"type\":\"server_error\",\"param\":null,\"code\":\"sun_preempted\"}}\n\n")); err != nil {
		return err
	}
	_, err := s.conn.Write([]byte("0\r\n\r\n"))
	return err
}

func (s *served) reset() error {
	stats.Failed.Add(1)
	if tcp, ok := s.conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	return fmt.Errorf("reset on purpose")
}
