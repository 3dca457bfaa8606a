// Package payload is what the network benchmarks run on both sides: as the host outside, and as
// the client in a sandbox, a container or neither. One program serves all, the one that
// measures, so that only the network between differs.
//
//	payload serve ADDRESS…   answer HTTP: /bytes/N is N zeros
//	payload fetch URL        download, and tell how fast
//	payload connect URL N    N times: connect and ask for one byte
//	payload burst URL N P    make N connections, P at once, each closed by the host
//	payload hold URL N       keep N connections open until told to end
//	payload stall URL N      begin N downloads and read none of them
//
// Results are JSON on standard output.
package payload

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// chunk is the size of reads and writes.
const chunk = 256 << 10

var roles = map[string]func(args []string) (any, error){
	"serve": serve, "fetch": fetch, "connect": connect, "burst": burst, "hold": hold, "stall": stall,
}

// Main plays the role that the first argument names, and writes the result.
func Main(args []string) error {
	if len(args) < 2 || roles[args[0]] == nil {
		return errors.New("usage: payload serve|fetch|connect|burst|hold|stall ADDRESS [N]")
	}
	result, err := roles[args[0]](args[1:])
	if err != nil {
		return fmt.Errorf("payload: %w", err)
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// serve waits until it has its addresses, and answers until it is ended.
func serve(addrs []string) (any, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /bytes/{n}", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.ParseInt(r.PathValue("n"), 10, 64)
		if err != nil {
			http.Error(w, "not a number", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
		for zeros := make([]byte, chunk); n > 0; n -= chunk {
			if _, err := w.Write(zeros[:min(n, chunk)]); err != nil {
				return
			}
		}
	})
	ended := make(chan error)
	for _, addr := range addrs {
		l, err := net.Listen("tcp4", addr)
		for ; errors.Is(err, unix.EADDRNOTAVAIL); l, err = net.Listen("tcp4", addr) {
			time.Sleep(50 * time.Millisecond)
		}
		if err != nil {
			return nil, err
		}
		go func() { ended <- http.Serve(l, mux) }()
	}
	return nil, <-ended
}

// Download is the result of fetch.
type Download struct {
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

func fetch(args []string) (any, error) {
	begun := time.Now()
	res, err := http.Get(args[0])
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, errors.New(res.Status)
	}
	d := &Download{}
	for buf := make([]byte, chunk); ; {
		n, err := res.Body.Read(buf)
		d.Bytes += int64(n)
		if err == io.EOF {
			d.Seconds = time.Since(begun).Seconds()
			return d, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// Connections is the result of connect, in milliseconds of the median.
type Connections struct {
	// Connect is the time until the connection is open, FirstByte until the first byte of an
	// answer over it.
	Connect   float64 `json:"connect_ms"`
	FirstByte float64 `json:"first_byte_ms"`
}

func connect(args []string) (any, error) {
	addr, request, n, err := parse(args)
	if err != nil {
		return nil, err
	}
	var connects, firsts []float64
	for range n {
		begun := time.Now()
		c, err := net.Dial("tcp4", addr)
		if err != nil {
			return nil, err
		}
		connected := time.Since(begun)
		if err := ask(c, request); err != nil {
			return nil, err
		}
		firsts = append(firsts, ms(time.Since(begun)))
		connects = append(connects, ms(connected))
		c.Close()
	}
	return &Connections{median(connects), median(firsts)}, nil
}

// parse returns the resolved address in a URL, a request for the URL, and the number after it.
// Resolving the name is not part of any measurement.
func parse(args []string) (addr, request string, n int, err error) {
	u, err := url.Parse(args[0])
	if err != nil {
		return "", "", 0, err
	}
	if n, err = strconv.Atoi(args[1]); err != nil {
		return "", "", 0, err
	}
	port := u.Port()
	if port == "" {
		port = "80"
	}
	a, err := net.ResolveTCPAddr("tcp4", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return "", "", 0, err
	}
	return a.String(), fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path.Clean(u.Path), u.Host), n, nil
}

// ask sends a request and reads the first byte of the answer.
func ask(c net.Conn, request string) error {
	if _, err := io.WriteString(c, request); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 1))
	return err
}

func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// hold opens connections, gets an answer over each, says so, and at the end of its input gets
// another over each.
func hold(args []string) (any, error) {
	addr, request, n, err := parse(args)
	if err != nil {
		return nil, err
	}
	conns, err := open(addr, n)
	if err != nil {
		return nil, err
	}
	everyone := func() error {
		for i, c := range conns {
			if err := answer(c, request); err != nil {
				return fmt.Errorf("connection %d of %d: %w", i+1, n, err)
			}
		}
		return nil
	}
	if err := everyone(); err != nil {
		return nil, err
	}
	wait()
	return n, everyone()
}

// stall starts downloads, says so, and reads nothing until the end of its input.
func stall(args []string) (any, error) {
	addr, request, n, err := parse(args)
	if err != nil {
		return nil, err
	}
	conns, err := open(addr, n)
	if err != nil {
		return nil, err
	}
	for _, c := range conns {
		if err := ask(c, request); err != nil {
			return nil, err
		}
	}
	wait()
	return n, nil
}

func open(addr string, n int) ([]net.Conn, error) {
	var conns []net.Conn
	for range n {
		c, err := net.Dial("tcp4", addr)
		if err != nil {
			return nil, fmt.Errorf("connection %d of %d: %w", len(conns)+1, n, err)
		}
		conns = append(conns, c)
	}
	return conns, nil
}

// answer sends a request and reads the whole answer.
func answer(c net.Conn, request string) error {
	if _, err := io.WriteString(c, request); err != nil {
		return err
	}
	res, err := http.ReadResponse(bufio.NewReaderSize(c, 1024), nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	return err
}

// wait says that everything is open, and returns at the end of the input.
func wait() {
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}
