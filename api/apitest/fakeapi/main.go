// Command fakeapi is the fake server of the SDKs' tests, in Python and in JavaScript. It
// prints the address of its control socket, and ends when its input does. Each connection
// to that socket creates one server with its own world, which ends with the connection.
//
// The protocol on the connection is lines of JSON. The first, from the test, is a setup; the
// answer is the server's URL. From then on each request is first reported to the test, which
// either passes it on to the real API over an apitest.World, or answers it itself, byte by byte
// if it likes: so the tests decide what goes wrong, and need no server, no WebSocket and no
// model of the API in their own language. See report and order.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"os"
)

func main() {
	control, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(control.Addr())
	go func() {
		for {
			conn, err := control.Accept()
			if err != nil {
				log.Fatal(err)
			}
			go serve(conn)
		}
	}()
	_, _ = io.Copy(io.Discard, os.Stdin)
}
