package main

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// ask is what the engine must understand of a request's body.
type ask struct {
	Model      string          `json:"model"`
	Stream     bool            `json:"stream"`
	MaxTokens  int             `json:"max_tokens"`
	TokenIDs   bool            `json:"return_token_ids"`
	Prompt     json.RawMessage `json:"prompt"`
	Messages   json.RawMessage `json:"messages"`
	Transfer   json.RawMessage `json:"kv_transfer_params"`
	chat       bool
	transfer   transfer
	seed       int // of the answer: every token of it follows from the prompt's first
	promptSize int // tokens
}

// transfer is our two-leg contract (sunfleet_api.wire), and vLLM's own part of it.
type transfer struct {
	RemoteDecode  bool            `json:"do_remote_decode"`
	RemotePrefill bool            `json:"do_remote_prefill"`
	EngineID      string          `json:"remote_engine_id"`
	BlockIDs      json.RawMessage `json:"remote_block_ids"`
	RequestID     string          `json:"remote_request_id"`
	Prompt        json.RawMessage `json:"prompt_token_ids"`
	Output        []int           `json:"sun_output_token_ids"`
	Model         string          `json:"sun_response_model"`
	Progress      bool            `json:"sun_progress"`
	Told          int             `json:"sun_told_tokens"`
	Resumed       bool            `json:"sun_resumed"`
}

// parse finds the fields of a body by one pass over its outermost level: encoding/json would read a 32 KB prompt twice.
func parse(body []byte, chat bool, a *ask) bool {
	*a = ask{MaxTokens: 16, chat: chat}
	good := fields(body, func(key, value []byte) {
		switch string(key) {
		case "model":
			a.Model = string(bytes.Trim(value, `"`))
		case "stream":
			a.Stream = string(value) == "true"
		case "max_tokens":
			a.MaxTokens = number(value)
		case "return_token_ids":
			a.TokenIDs = string(value) == "true"
		case "prompt", "messages":
			a.Prompt = value
		case "kv_transfer_params":
			a.Transfer = value
		}
	})
	if !good || a.Prompt == nil || a.MaxTokens < 1 {
		return false
	}
	prompt := []byte(a.Prompt)
	if len(a.Transfer) > 0 && a.Transfer[0] == '{' {
		if !readTransfer(a.Transfer, &a.transfer) {
			return false
		}
		if a.transfer.Prompt != nil {
			prompt = a.transfer.Prompt
		}
	}
	a.seed, a.promptSize = readPrompt(prompt)
	return true
}

func readTransfer(raw []byte, t *transfer) bool {
	return fields(raw, func(key, value []byte) {
		switch string(key) {
		case "do_remote_decode":
			t.RemoteDecode = string(value) == "true"
		case "do_remote_prefill":
			t.RemotePrefill = string(value) == "true"
		case "remote_engine_id":
			t.EngineID = text(value)
		case "remote_request_id":
			t.RequestID = text(value)
		case "remote_block_ids":
			if value[0] == '[' {
				t.BlockIDs = value
			}
		case "prompt_token_ids":
			t.Prompt = value
		case "sun_output_token_ids":
			_ = json.Unmarshal(value, &t.Output)
		case "sun_response_model":
			t.Model = text(value)
		case "sun_progress":
			t.Progress = string(value) == "true"
		case "sun_told_tokens":
			t.Told = number(value)
		case "sun_resumed":
			t.Resumed = string(value) == "true"
		}
	})
}

// readPrompt gives the seed and the length in tokens: of a list of ids its first and its length; of text, which has a
// token for every four bytes, the number that the load generator writes into it after a "#".
func readPrompt(prompt []byte) (seed, size int) {
	if len(prompt) > 1 && prompt[0] == '[' && prompt[1] >= '0' && prompt[1] <= '9' {
		return number(prompt[1:]), bytes.Count(prompt, []byte{','}) + 1
	}
	mark := bytes.IndexByte(prompt, '#')
	return number(prompt[mark+1:]), len(prompt)/4 + 1
}

func text(value []byte) string { return string(bytes.Trim(value, `"`)) }

// number is that which value begins with; 0 when it begins with none.
func number(value []byte) int {
	end := 0
	for end < len(value) && value[end] >= '0' && value[end] <= '9' {
		end++
	}
	n, _ := strconv.Atoi(string(value[:end]))
	return n
}

// fields calls each with every key and raw value of an object's outermost level; false when it is none.
func fields(b []byte, each func(key, value []byte)) bool {
	i := space(b, 0)
	if i >= len(b) || b[i] != '{' {
		return false
	}
	for i = space(b, i+1); i < len(b) && b[i] == '"'; i = space(b, i+1) {
		end := value(b, i)
		if end < 0 {
			return false
		}
		key := b[i+1 : end-1]
		if i = space(b, end); i >= len(b) || b[i] != ':' {
			return false
		}
		i = space(b, i+1)
		if end = value(b, i); end < 0 {
			return false
		}
		each(key, b[i:end])
		if i = space(b, end); i >= len(b) || b[i] != ',' {
			break
		}
	}
	return i < len(b) && b[i] == '}'
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// value gives the end of the JSON value that begins at i; -1 when there is none.
func value(b []byte, i int) int {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			if i = closing(b, i); i < 0 {
				return -1
			}
		case '[':
			if end := idList(b, i); end > 0 {
				i = end - 1
			} else {
				depth++
			}
		case '{':
			depth++
		case '}', ']':
			depth--
		case ',', ':', ' ', '\n', '\t', '\r':
		default:
			for i+1 < len(b) && b[i+1] > ' ' && b[i+1] != ',' && b[i+1] != '}' && b[i+1] != ']' {
				i++
			}
		}
		i++
		if depth == 0 {
			return i
		}
	}
	return -1
}

// idList gives the end of a list of numbers that begins at i, in which nothing needs a look; 0 when there is none.
func idList(b []byte, i int) int {
	if i+1 >= len(b) || b[i+1] < '0' || b[i+1] > '9' {
		return 0
	}
	if end := bytes.IndexByte(b[i:], ']'); end > 0 {
		return i + end + 1
	}
	return 0
}

// closing gives the index of the quote that ends the string beginning at i; -1 when none does.
func closing(b []byte, i int) int {
	for at := i + 1; ; {
		found := bytes.IndexByte(b[at:], '"')
		if found < 0 {
			return -1
		}
		at += found
		slashes := 0
		for b[at-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return at
		}
		at++
	}
}
