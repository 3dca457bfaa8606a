// Command conformance serves the protocol with fake sandboxes, for conformance suites. It prints
// two URLs: at the first one, a suite that sends no key is given one; the second requires the
// key that is printed after it.
package main

import (
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"

	"github.com/bothy-dev/bothy/api"
	"github.com/bothy-dev/bothy/api/apitest"
	"github.com/bothy-dev/bothy/api/rest"
	"github.com/bothy-dev/bothy/mcp"
)

func main() {
	world, tokens := apitest.New(), apitest.NewTokens()
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	server := mcp.New(mcp.Services{
		Sandboxes: world, Exec: world, Code: world, Files: world.Files(), Snapshots: world, Limits: world,
	}, "conformance", quiet)
	guarded := mcp.Handler(server, tokens, quiet)
	given := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+apitest.Writer)
		guarded.ServeHTTP(w, r)
	})
	failed := make(chan error)
	for _, door := range []http.Handler{given, guarded} {
		front := api.New(api.Services{Services: rest.Services{Tokens: tokens}, Log: quiet}, api.Config{Listen: "127.0.0.1:0"})
		front.Handle(mcp.Path, door)
		if err := front.Listen(); err != nil {
			log.Fatal(err)
		}
		fmt.Println(front.URL() + mcp.Path)
		go func() { failed <- front.Serve() }()
	}
	fmt.Println(apitest.Writer)
	go func() { // it ends with the process that started it
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	log.Fatal(<-failed)
}
