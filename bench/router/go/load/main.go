// Command load asks an OpenAI-compatible endpoint, each client one request after the other, and prints one JSON object:
// what was answered inside the measured window, how fast, and what the process -pid spent meanwhile. A client that holds
// an answer to be wrong, cut or unending says so: nothing is counted as answered that was not.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

var (
	urls     = flag.String("url", "http://127.0.0.1:8080", "where to ask; several, with commas, take turns")
	prefills = flag.String("prefill", "", "make both legs here in the client: prefill engines; -url names decode engines")
	model    = flag.String("model", "mock", "the task")
	key      = flag.String("key", "", "API key")
	chat     = flag.Bool("chat", false, "chat completions")
	mixed    = flag.Bool("mixed", false, "every other request is not streamed; with -chat every other pair is a completion")
	streamed = flag.Bool("stream", false, "streamed answers")
	tokens   = flag.Int("tokens", 16, "tokens of an answer")
	size     = flag.Int("prompt-bytes", 64, "bytes of a prompt")
	clients  = flag.Int("clients", 16, "clients at once")
	stagger  = flag.Float64("stagger", 0, "seconds over which the clients begin")
	warm     = flag.Float64("warm", 1.5, "seconds before the window")
	seconds  = flag.Float64("seconds", 6, "length of the window")
	patience = flag.Float64("patience", 30, "seconds without a byte after which an answer counts as stuck")
	most     = flag.Int64("requests", 0, "end after so many; 0: only the window ends it")
	leave    = flag.Float64("leave", 0, "share of requests whose client leaves before the answer is whole")
	slow     = flag.Float64("slow", 0, "share of streams whose client reads slowly")
	pid      = flag.Int("pid", 0, "process whose time and memory are measured, with its children")
)

var (
	asked    atomic.Int64 // makes prompts unique
	begun    atomic.Int64
	from, to time.Time
)

func inWindow(t time.Time) bool { return !t.Before(from) && t.Before(to) }

func main() {
	flag.Parse()
	targets, sources := strings.Split(*urls, ","), strings.Split(*prefills, ",")
	asked.Store(time.Now().UnixNano() % 1_000_000_000)
	from = time.Now().Add(time.Duration(*warm * 1e9))
	to = from.Add(time.Duration(*seconds * 1e9))
	workers := make([]*worker, *clients)
	var all sync.WaitGroup
	for number := range workers {
		source := ""
		if *prefills != "" {
			source = sources[number/len(targets)%len(sources)]
		}
		w, err := newWorker(number, targets[number%len(targets)], source)
		if err != nil {
			log.Fatal(err)
		}
		workers[number] = w
		all.Add(1)
		go func() {
			defer all.Done()
			time.Sleep(time.Duration(*stagger * 1e9 * float64(number) / float64(*clients)))
			w.run()
		}()
	}
	time.Sleep(time.Until(from))
	watched := watch(*pid)
	if *most > 0 {
		all.Wait()
	} else {
		time.Sleep(time.Until(to))
	}
	used := watched.used()
	all.Wait()
	report(workers, used)
}

func report(workers []*worker, used usage) {
	var sum record
	for _, w := range workers {
		sum.add(&w.record)
	}
	out := map[string]any{
		"seconds": *seconds, "requests": sum.requests, "requests_per_s": float64(sum.requests) / *seconds,
		"chunks": sum.chunks, "chunks_per_s": float64(sum.chunks) / *seconds,
		"ttft_ms": percentiles(sum.ttft), "gap_ms": percentiles(sum.gap), "total_ms": percentiles(sum.total), "outcomes": sum.outcomes,
	}
	if *pid > 0 {
		out["cpu_s"], out["rss_mb"] = used.cpu, used.rss
	}
	out["own_cpu_s"] = cpuSeconds([]int{os.Getpid()})
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
