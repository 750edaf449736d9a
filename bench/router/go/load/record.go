package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// record is what one client saw; times and counts of the window, outcomes of all requests.
type record struct {
	requests, chunks int64
	ttft, gap, total []time.Duration
	outcomes         map[string]int64
}

func (r *record) add(other *record) {
	r.requests += other.requests
	r.chunks += other.chunks
	r.ttft = append(r.ttft, other.ttft...)
	r.gap = append(r.gap, other.gap...)
	r.total = append(r.total, other.total...)
	if r.outcomes == nil {
		r.outcomes = map[string]int64{}
	}
	for name, count := range other.outcomes {
		r.outcomes[name] += count
	}
}

func percentiles(values []time.Duration) map[string]float64 {
	slices.Sort(values)
	found := map[string]float64{}
	for name, share := range map[string]float64{"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1} {
		if len(values) > 0 {
			at := values[max(int(share*float64(len(values))+0.999999)-1, 0)]
			found[name] = float64(at.Nanoseconds()) / 1e6
		}
	}
	return found
}

// usage is what a process tree spent: seconds of CPU in a while, megabytes of resident memory at its peak.
type usage struct{ cpu, rss float64 }

type watcher struct {
	pids  []int
	began float64
}

func watch(root int) watcher {
	if root == 0 {
		return watcher{}
	}
	pids := tree(root)
	for _, one := range pids {
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", one), []byte("5"), 0) // begin a new peak
	}
	return watcher{pids, cpuSeconds(pids)}
}

func (w watcher) used() usage {
	used := usage{cpu: cpuSeconds(w.pids) - w.began}
	for _, one := range w.pids {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", one))
		for _, line := range strings.Split(string(status), "\n") {
			if words := strings.Fields(line); len(words) == 3 && words[0] == "VmHWM:" {
				kilobytes, _ := strconv.ParseFloat(words[1], 64)
				used.rss += kilobytes / 1024
			}
		}
	}
	return used
}

func tree(root int) []int {
	children := map[int][]int{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		one, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if words := statWords(one); len(words) > 1 {
			parent, _ := strconv.Atoi(words[1])
			children[parent] = append(children[parent], one)
		}
	}
	found := []int{root}
	for next := 0; next < len(found); next++ {
		found = append(found, children[found[next]]...)
	}
	return found
}

// cpuSeconds: user and system time, in ticks of 10 ms.
func cpuSeconds(pids []int) float64 {
	ticks := 0.0
	for _, one := range pids {
		if words := statWords(one); len(words) > 12 {
			user, _ := strconv.ParseFloat(words[11], 64)
			system, _ := strconv.ParseFloat(words[12], 64)
			ticks += user + system
		}
	}
	return ticks / 100
}

// statWords: the words of /proc/PID/stat after the program's name, which may hold spaces.
func statWords(pid int) []string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
}
