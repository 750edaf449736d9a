// Command probe is what the smoke tests run in pods: a server, a client and a resolver in one static program.
//
//	probe serve ADDRESS TEXT   answer every request with TEXT
//	probe get URL              print what URL answers
//	probe resolve NAME         print the addresses of NAME
//	probe id                   print who it runs as
//	probe wait                 do nothing until told to stop
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const timeout = 2 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	switch {
	case len(args) == 3 && args[0] == "serve":
		return serve(ctx, args[1], args[2])
	case len(args) == 2 && args[0] == "get":
		return get(ctx, args[1])
	case len(args) == 2 && args[0] == "resolve":
		return resolve(ctx, args[1])
	case len(args) == 1 && args[0] == "id":
		fmt.Printf("uid=%d gid=%d\n", os.Getuid(), os.Getgid())
		return nil
	case len(args) == 1 && args[0] == "wait":
		<-ctx.Done()
		return nil
	}
	return fmt.Errorf("unknown command %q", args)
}

func serve(ctx context.Context, address, text string) error {
	server := http.Server{Addr: address, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, text)
	})}
	context.AfterFunc(ctx, func() { server.Close() })
	fmt.Println("serving on", address)
	if err := server.ListenAndServe(); err != http.ErrServerClosed {
		return err
	}
	return nil
}

func get(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(os.Stdout, response.Body)
	return err
}

func resolve(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, name)
	if err != nil {
		return err
	}
	fmt.Println(strings.Join(addresses, "\n"))
	return nil
}
