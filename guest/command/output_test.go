package command

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func testOutput(limit int) *output {
	return &output{limit: limit, total: new(atomic.Int64), maxTotal: 1 << 30}
}

// fill appends n bytes that encode their own offsets.
func fill(o *output, s Stream, n int) {
	for n > 0 {
		p := make([]byte, min(n, 1000))
		_, end := o.bounds()
		for i := range p {
			p[i] = byte(end + int64(i))
		}
		o.append(s, p)
		n -= len(p)
	}
}

func TestOutputKeepsTheLastBytes(t *testing.T) {
	o := testOutput(100_000)
	fill(o, Stdout, 250_000)
	start, end := o.bounds()
	if start != 150_000 || end != 250_000 || o.total.Load() != 100_000 {
		t.Errorf("holds %d to %d, %d in all", start, end, o.total.Load())
	}
	o.close()
	r := o.attach(0)
	defer r.Close()
	if !r.Truncated() {
		t.Error("a reader of discarded output gets no error")
	}
	next := start
	for {
		c, err := r.Next(t.Context(), nil)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, b := range c.Data {
			if c.Offset != next || b != byte(next+int64(i)) {
				t.Fatalf("wrong byte at %d", next+int64(i))
			}
		}
		next += int64(len(c.Data))
	}
	if next != end {
		t.Errorf("read to %d of %d", next, end)
	}
}

// A command stalls while a reader is slow, and continues when it has gone.
func TestOutputWaitsForItsReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOutput(minHeld)
		r := o.attach(0)
		done := false
		go func() {
			fill(o, Stdout, 10*minHeld)
			done = true
		}()
		synctest.Wait()
		if start, end := o.bounds(); done || start != 0 || end > minHeld {
			t.Fatalf("did not wait: %d to %d", start, end)
		}
		var got int64
		for range 5 {
			c, err := r.Next(t.Context(), nil)
			if err != nil || c.Offset != got {
				t.Fatalf("chunk %d at %d, %v", len(c.Data), c.Offset, err)
			}
			got += int64(len(c.Data))
			synctest.Wait()
		}
		if start, end := o.bounds(); done || start > got || end <= minHeld || end-start > minHeld {
			t.Errorf("after %d bytes: %d to %d", got, start, end)
		}
		r.Close()
		synctest.Wait()
		if _, end := o.bounds(); !done || end != 10*minHeld {
			t.Errorf("does not continue without its reader: %d", end)
		}
	})
}

func TestReadersTickAndGiveUp(t *testing.T) {
	o := testOutput(minHeld)
	r := o.attach(-1)
	defer r.Close()
	tick := make(chan time.Time, 1)
	tick <- time.Time{}
	if _, err := r.Next(t.Context(), tick); err != ErrTick {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Next(ctx, nil); err != context.Canceled {
		t.Errorf("got %v", err)
	}
	o.append(Stderr, []byte("late"))
	if c, err := r.Next(t.Context(), nil); err != nil || string(c.Data) != "late" || c.Stream != Stderr {
		t.Errorf("got %q, %v", c.Data, err)
	}
}

// With two streams, many sizes, and readers from any offset, each byte arrives once and in order.
func TestOutputAtRandom(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	o := testOutput(200_000)
	var all []byte
	var streams []Stream
	for len(all) < 1_000_000 {
		p := bytes.Repeat([]byte{byte(rnd.IntN(256))}, 1+rnd.IntN(5000))
		s := Stream(1 + rnd.IntN(2))
		o.append(s, p)
		all = append(all, p...)
		for range p {
			streams = append(streams, s)
		}
		if rnd.IntN(50) > 0 {
			continue
		}
		start, end := o.bounds()
		r := o.attach(start + rnd.Int64N(end-start+1))
		for at := r.next; at < end; {
			c, err := r.Next(t.Context(), nil)
			if err != nil || c.Offset != at || !bytes.Equal(c.Data, all[at:at+int64(len(c.Data))]) || c.Stream != streams[at] {
				t.Fatalf("wrong chunk at %d: %v", at, err)
			}
			at += int64(len(c.Data))
		}
		r.Close()
	}
}

func TestAllOutputsTogetherAreBounded(t *testing.T) {
	var total atomic.Int64
	var outputs []*output
	for range 100 {
		o := &output{limit: 1 << 20, total: &total, maxTotal: 4 << 20}
		fill(o, Stdout, 1<<20)
		outputs = append(outputs, o)
	}
	if bound := int64(4<<20 + 100*minHeld); total.Load() > bound {
		t.Errorf("%d bytes are held, more than %d", total.Load(), bound)
	}
	for _, o := range outputs {
		o.drop()
		o.append(Stdout, []byte("into the void"))
	}
	if total.Load() != 0 {
		t.Errorf("%d bytes are held after all was dropped", total.Load())
	}
}
