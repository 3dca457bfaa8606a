package payload

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Burst is the result of burst.
type Burst struct {
	// Rate is how many connections per second were opened, used and closed.
	Rate float64 `json:"rate"`
	// Slowest is the longest that any of them took to open, in milliseconds.
	Slowest float64 `json:"slowest_ms"`
}

// burst opens many connections, so many concurrently. Each is closed by the server first, so
// that its port can be reused immediately.
func burst(args []string) (any, error) {
	if len(args) < 3 {
		return nil, errors.New("usage: payload burst URL N PARALLEL")
	}
	addr, request, n, err := parse(args)
	if err != nil {
		return nil, err
	}
	parallel, err := strconv.Atoi(args[2])
	if err != nil || parallel < 1 {
		return nil, fmt.Errorf("%q is not a number of connections at once", args[2])
	}
	request = strings.TrimSuffix(request, "\r\n") + "Connection: close\r\n\r\n"
	turns := make(chan struct{}, n)
	for range n {
		turns <- struct{}{}
	}
	close(turns)
	var mu sync.Mutex
	var slowest time.Duration
	var errs error
	var wg sync.WaitGroup
	begun := time.Now()
	for range parallel {
		wg.Go(func() {
			for range turns {
				took, err := oneOfBurst(addr, request)
				mu.Lock()
				slowest = max(slowest, took)
				if err != nil && errs == nil {
					errs = err
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return &Burst{float64(n) / time.Since(begun).Seconds(), ms(slowest)}, errs
}

func oneOfBurst(addr, request string) (took time.Duration, err error) {
	begun := time.Now()
	c, err := net.Dial("tcp4", addr)
	took = time.Since(begun)
	if err != nil {
		return took, err
	}
	defer c.Close()
	if _, err := io.WriteString(c, request); err != nil {
		return took, err
	}
	answer := bufio.NewReader(c)
	res, err := http.ReadResponse(answer, nil)
	if err != nil {
		return took, err
	}
	if _, err := io.Copy(io.Discard, answer); err != nil {
		return took, err
	}
	if res.StatusCode != http.StatusOK {
		return took, errors.New(res.Status)
	}
	return took, nil
}
