package state

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"reflect"
	"testing"

	"gvisor.dev/gvisor/pkg/compressio"
	"gvisor.dev/gvisor/pkg/state/wire"
)

type registers struct{ fpu [512]byte }

func (*registers) StateTypeName() string                   { return "state.registers" }
func (*registers) StateFields() []string                   { return []string{"fpu"} }
func (r *registers) StateSave(s Sink)                      { s.Save(0, &r.fpu) }
func (r *registers) StateLoad(_ context.Context, s Source) { s.Load(0, &r.fpu) }
func init()                                                { Register((*registers)(nil)) }
func save(t *testing.T, w io.Writer, r *registers) (out Stats) {
	t.Helper()
	out, err := Save(t.Context(), w, r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What is registered waits in a list until somebody asks for a type.
func TestTypesAreRegisteredOnDemand(t *testing.T) {
	if filled {
		t.Fatal("the tables are filled before anybody asks")
	}
	if len(registered) == 0 {
		t.Error("nothing waits to be put into the tables")
	}
	fill()
	if globalTypeDatabase["state.registers"] != reflect.TypeFor[registers]() {
		t.Error("a type that was registered is not found")
	}
}

// An array of bytes is written as one object of its length, not as so many numbers of up to
// two bytes and a type each.
func TestByteArraysAreWrittenWhole(t *testing.T) {
	r := &registers{fpu: [512]byte(bytes.Repeat([]byte{0x80, 0xff}, 256))}
	var b bytes.Buffer
	save(t, &b, r)
	if b.Len() > 600 {
		t.Errorf("512 bytes take %d", b.Len())
	}
	var back registers
	if _, err := Load(t.Context(), &b, &back); err != nil || back != *r {
		t.Errorf("%v, %v", back, err)
	}
}

// What was written without that is read, too.
func TestByteArraysAreReadPieceByPiece(t *testing.T) {
	defer func(before bool) { wholeArrays = before }(wholeArrays)
	wholeArrays = false
	r := &registers{fpu: [512]byte(bytes.Repeat([]byte{0x80, 0xff}, 256))}
	var b bytes.Buffer
	save(t, &b, r)
	if b.Len() < 1024 {
		t.Errorf("512 bytes take %d", b.Len())
	}
	wholeArrays = true
	var back registers
	if _, err := Load(t.Context(), &b, &back); err != nil || back != *r {
		t.Errorf("%v, %v", back, err)
	}
}

func TestBuffersAreUsed(t *testing.T) {
	var file bytes.Buffer
	w := compressio.NewSimpleWriter(&file, nil, 4096)
	if _, ok := writeBuffer(w).(*bufio.Writer); !ok {
		t.Error("a stream is not written to its buffer")
	}
	save(t, w, new(registers))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := compressio.NewSimpleReader(io.NopCloser(&file), nil)
	if _, ok := readBuffer(r).(*bufio.Reader); !ok {
		t.Error("a stream is not read from its buffer")
	}
	// What is hashed has to pass through the hash.
	var hashed bytes.Buffer
	if _, ok := writeBuffer(compressio.NewSimpleWriter(&hashed, []byte("key"), 4096)).(*bufio.Writer); ok {
		t.Error("what is hashed is written past the hash")
	}
}

func TestStatisticsAreOff(t *testing.T) {
	if s := save(t, io.Discard, new(registers)); s.stack != nil || s.byType != nil {
		t.Errorf("the statistics are %+v", s)
	}
}

// It reads a whole stream ahead of who asks for its first object, and not a byte more.
func TestObjectsAreReadAhead(t *testing.T) {
	var b bytes.Buffer
	w := wire.Writer{Writer: &b}
	const objects = 100
	for i := range objects {
		wire.Save(&w, wire.Uint(i+1))
		wire.Save(&w, wire.Bool(true))
	}
	b.WriteString("rest")
	ds := decodeState{r: wire.Reader{Reader: &b}}
	for i := range objects {
		if got := ds.next(objects); got != wire.Object(wire.Uint(i+1)) {
			t.Fatalf("object %d is %v", i, got)
		}
		ds.next(objects)
	}
	if b.String() != "rest" {
		t.Errorf("%q is left", b.String())
	}
	if !reflect.ValueOf(ds.ahead.batches).IsValid() || ds.ahead.batches == nil {
		t.Error("nothing was read ahead")
	}
}
