package main

import (
	"strconv"
	"sync/atomic"
	"time"
)

const vocabulary = 1000

// Every token of an answer follows from its prompt: whoever asked can tell a lost token from a repeated one.
func tokenAt(seed, index int) int { return 200 + (seed+index)%vocabulary }

func appendWord(b []byte, token int) []byte {
	return strconv.AppendInt(append(b, " w"...), int64(token), 10)
}

// frame is what every chunk of one answer begins with, and what follows the piece of text.
type frame struct{ before, between, after []byte }

func (a *ask) frame(id string, created time.Time, model string) frame {
	kind, prefix := "text_completion", "cmpl-"
	if a.chat {
		kind, prefix = "chat.completion.chunk", "chatcmpl-"
	}
	head := []byte(`data: {"id":"` + prefix + id + `","object":"` + kind + `","created":`)
	head = strconv.AppendInt(head, created.Unix(), 10)
	head = append(head, `,"model":"`+model+`","choices":[{"index":0,`...)
	if a.chat {
		return frame{append(head, `"delta":{"content":"`...), []byte(`"},"logprobs":null,"finish_reason":`), []byte(`,"token_ids":null}]}`)}
	}
	after := `,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]}`
	return frame{append(head, `"text":"`...), []byte(`","logprobs":null,"finish_reason":`), []byte(after)}
}

func (f frame) appendEvent(b []byte, token int, last bool) []byte {
	b = appendWord(append(b, f.before...), token)
	b = append(b, f.between...)
	if last {
		b = append(b, `"length"`...)
	} else {
		b = append(b, "null"...)
	}
	return append(append(b, f.after...), "\n\n"...)
}

// appendWhole appends the answer that is not streamed; of a prefill leg with the hand-over.
func (a *ask) appendWhole(b []byte, id, model string, created time.Time) []byte {
	kind, prefix := "text_completion", "cmpl-"
	if a.chat {
		kind, prefix = "chat.completion", "chatcmpl-"
	}
	b = append(b, `{"id":"`+prefix+id+`","object":"`+kind+`","created":`...)
	b = strconv.AppendInt(b, created.Unix(), 10)
	b = append(b, `,"model":"`+model+`","choices":[{"index":0,`...)
	if a.chat {
		b = append(b, `"message":{"role":"assistant","content":"`...)
	} else {
		b = append(b, `"text":"`...)
	}
	for index := range a.MaxTokens {
		b = appendWord(b, tokenAt(a.seed, index))
	}
	b = append(b, '"')
	if a.chat {
		b = append(b, `,"refusal":null,"tool_calls":[]}`...)
	}
	b = append(b, `,"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":`...)
	b = a.appendOutputIDs(b)
	b = append(b, `,"prompt_logprobs":null,"prompt_token_ids":`...)
	b = a.appendPromptIDs(b)
	b = append(b, `}],"service_tier":null,"system_fingerprint":null,"usage":{"prompt_tokens":`...)
	b = strconv.AppendInt(b, int64(a.promptSize), 10)
	b = append(b, `,"total_tokens":`...)
	b = strconv.AppendInt(b, int64(a.promptSize+a.MaxTokens), 10)
	b = append(b, `,"completion_tokens":`...)
	b = strconv.AppendInt(b, int64(a.MaxTokens), 10)
	b = append(b, `,"prompt_tokens_details":null},"kv_transfer_params":`...)
	if a.transfer.RemoteDecode {
		b = a.appendHandover(b, id)
	} else {
		b = append(b, "null"...)
	}
	return append(b, '}')
}

func (a *ask) appendHandover(b []byte, id string) []byte {
	b = append(b, `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[`...)
	for block := range (a.promptSize + 15) / 16 {
		if block > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64((a.seed+block)%4096), 10)
	}
	b = append(b, `],"remote_engine_id":"`+engineID+`","remote_request_id":"cmpl-`+id...)
	return append(b, `","remote_host":"127.0.0.1","remote_port":5600,"tp_size":1}`...)
}

func (a *ask) appendOutputIDs(b []byte) []byte {
	if !a.TokenIDs {
		return append(b, "null"...)
	}
	return appendIDs(b, a.MaxTokens, func(index int) int { return tokenAt(a.seed, index) })
}

func (a *ask) appendPromptIDs(b []byte) []byte {
	if !a.TokenIDs {
		return append(b, "null"...)
	}
	b = strconv.AppendInt(append(b, '['), int64(a.seed), 10)
	return append(append(b, restIDs(a.promptSize-1)...), ']')
}

// rest is ",1001,1002,...", the ids of a prompt from the second on, and where each ends.
type rest struct {
	text []byte
	ends []int
}

var known atomic.Pointer[rest]

// restIDs gives so many of them. They are the same for every prompt, and written once: a real engine has its ids from a tokenizer,
// and an engine that spends more on writing them than a router on the whole request measures itself.
func restIDs(count int) []byte {
	r := known.Load()
	if r == nil || len(r.ends) <= count {
		r = &rest{ends: make([]int, 1, 2*count+1)}
		for index := 1; len(r.ends) <= 2*count; index++ {
			r.text = strconv.AppendInt(append(r.text, ','), int64(1000+index%30000), 10)
			r.ends = append(r.ends, len(r.text))
		}
		known.Store(r)
	}
	return r.text[:r.ends[max(count, 0)]]
}

func appendIDs(b []byte, count int, id func(int) int) []byte {
	b = append(b, '[')
	for index := range count {
		if index > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(id(index)), 10)
	}
	return append(b, ']')
}
