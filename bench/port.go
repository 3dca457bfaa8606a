package bench

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// A Page is a page of a server inside, requested from outside.
type Page struct {
	URL string
	// Key is the key to reach it, if it needs one.
	Key string
	// Body is its content.
	Body string
	// For is how long each of the two measurements takes, two seconds if zero.
	For time.Duration
}

const (
	// Clients is how many clients request it at the same time for the rate.
	Clients = 16
	asked   = 2 * time.Second
)

// Ask is a subject: one client that sends requests repeatedly over one connection, for the
// median of the times, in milliseconds, and then Clients of them, for the requests per second.
func (p Page) Ask(name, once, rate string) Subject {
	return Subject{Name: name, Once: func(ctx context.Context, record Record) error {
		took, err := p.crowd(ctx, 1)
		if err != nil {
			return err
		}
		slices.Sort(took)
		record(once, float64(took[len(took)/2].Microseconds())/1000)
		if took, err = p.crowd(ctx, Clients); err != nil {
			return err
		}
		record(rate, float64(len(took))/cmp.Or(p.For, asked).Seconds())
		return nil
	}}
}

// crowd makes n clients send requests for the given time, and returns how long each answer took.
func (p Page) crowd(ctx context.Context, n int) ([]time.Duration, error) {
	u, err := url.Parse(p.URL)
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\n", u.RequestURI(), u.Host)
	if p.Key != "" {
		head += "Authorization: Bearer " + p.Key + "\r\n"
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(p.For, asked))
	defer cancel()
	var (
		mu   sync.Mutex
		all  []time.Duration
		errs []error
		wait sync.WaitGroup
	)
	for range n {
		wait.Go(func() {
			took, err := p.client(ctx, u.Host, head+"\r\n")
			mu.Lock()
			defer mu.Unlock()
			all, errs = append(all, took...), append(errs, err)
		})
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil || len(all) == 0 {
		return nil, errors.Join(err, fmt.Errorf("%d answers of %s", len(all), p.URL))
	}
	return all, nil
}

// client sends requests over one connection until the context ends.
func (p Page) client(ctx context.Context, addr, request string) (took []time.Duration, err error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	in := bufio.NewReader(c)
	for ctx.Err() == nil {
		begun := time.Now()
		if _, err := io.WriteString(c, request); err != nil {
			return nil, err
		}
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusOK || string(body) != p.Body {
			return nil, fmt.Errorf("%s: %s %.100q, %w", p.URL, res.Status, body, err)
		}
		took = append(took, time.Since(begun))
	}
	return took, nil
}
