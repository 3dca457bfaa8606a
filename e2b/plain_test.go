package e2b

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
)

func zipped(text string) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, text)
	_ = z.Close()
	return b.Bytes()
}

func frame(flag byte, message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flag}, uint32(len(message))), message...)
}

func TestPlain(t *testing.T) {
	stream := bytes.Join([][]byte{frame(1, zipped("one")), frame(0, []byte("two")), frame(1, zipped(""))}, nil)
	plainStream := string(bytes.Join([][]byte{frame(0, []byte("one")), frame(0, []byte("two")), frame(0, nil)}, nil))
	bomb := frame(1, zipped(strings.Repeat("0", maxMessage+1)))
	for what, c := range map[string]struct {
		path, header string
		body         []byte
		want         string
		fails        bool
	}{
		"a message":          {"/process.Process/List", "Content-Encoding", zipped("one"), "one", false},
		"a stream":           {"/process.Process/StreamInput", "Connect-Content-Encoding", stream, plainStream, false},
		"a file":             {"/files", "Content-Encoding", zipped("one"), string(zipped("one")), false},
		"not compressed":     {"/process.Process/List", "X", []byte("one"), "one", false},
		"no gzip":            {"/process.Process/List", "Content-Encoding", []byte("one"), "", true},
		"no gzip, a stream":  {"/process.Process/Start", "Connect-Content-Encoding", frame(1, []byte("one")), "", true},
		"cut":                {"/process.Process/Start", "Connect-Content-Encoding", stream[:len(stream)-1], "", true},
		"too large":          {"/process.Process/Start", "Connect-Content-Encoding", frame(0, make([]byte, maxMessage+1)), "", true},
		"too large unpacked": {"/filesystem.Filesystem/ListDir", "Content-Encoding", zipped(strings.Repeat("0", maxMessage+1)), "", true},
		"too large inside":   {"/process.Process/Start", "Connect-Content-Encoding", bomb, "", true},
	} {
		r := httptest.NewRequest("POST", c.path, bytes.NewReader(c.body))
		r.Header.Set(c.header, "gzip")
		plain(r)
		got, err := io.ReadAll(r.Body)
		if (err != nil) != c.fails || !c.fails && string(got) != c.want {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
}
