package e2b

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/guest/wire/filesystempb"
	"github.com/bothy-dev/bothy/guest/wire/processpb"
)

// maxMessage limits the size of a message to the agent, as the agent does.
const maxMessage = 4 << 20

// decodedFactor is how many times as much memory as its bytes a decoded message takes at most: an
// empty argument has two bytes, and is a string. smallMessage is read before it is accounted for.
const (
	decodedFactor = 16
	smallMessage  = 64 << 10
)

var errTooLong = bothy.Errorf(bothy.CodeTooLarge, "the request is larger than %d bytes", maxMessage)

// noteCall records for the audit what a call to the agent does: the command that is run, or the
// paths. It uses the same decoders as the agent, so that both understand the message the same
// way.
func (d *Door) noteCall(r *http.Request, t target) error {
	if r.URL.Path == "/files" {
		d.Server.Note(r, t.id, r.URL.Query().Get("path"), "")
		return nil
	}
	var m proto.Message
	var said func() (object, command string)
	switch r.URL.Path {
	case "/process.Process/Start":
		v := new(processpb.StartRequest)
		m, said = v, func() (string, string) { return "", commandOf(v.GetProcess()) }
	case "/filesystem.Filesystem/MakeDir":
		v := new(filesystempb.MakeDirRequest)
		m, said = v, func() (string, string) { return v.Path, "" }
	case "/filesystem.Filesystem/Remove":
		v := new(filesystempb.RemoveRequest)
		m, said = v, func() (string, string) { return v.Path, "" }
	case "/filesystem.Filesystem/Move":
		v := new(filesystempb.MoveRequest)
		m, said = v, func() (string, string) { return v.Source + " " + v.Destination, "" }
	default:
		return nil
	}
	body, err := readMessage(r)
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	r.TransferEncoding = nil
	if decode(r.Header.Get("Content-Type"), body, m) == nil {
		object, command := said()
		d.Server.Note(r, t.id, object, command)
	}
	return nil
}

// readMessage reads the body of a call, as far as there is memory for what it will be decoded to.
func readMessage(r *http.Request) ([]byte, error) {
	const most = maxMessage + 5 // with the envelope of a stream
	var body []byte
	size, err := r.ContentLength, error(nil)
	if size < 0 {
		body, err = io.ReadAll(io.LimitReader(r.Body, smallMessage))
		if size = int64(len(body)); size == smallMessage {
			size = most
		}
	}
	if size > most {
		return nil, errTooLong
	}
	if err := bothy.TakeMemory(r.Context(), size*decodedFactor); err != nil {
		return nil, err
	}
	rest, failed := io.ReadAll(io.LimitReader(r.Body, most+1-int64(len(body))))
	if err != nil || failed != nil {
		return nil, invalid("the request did not arrive whole")
	}
	if body = append(body, rest...); len(body) > most {
		return nil, errTooLong
	}
	return body, nil
}

// decode decodes the only message of a request: bare, or in the envelope of a stream.
func decode(contentType string, body []byte, m proto.Message) error {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return err
	}
	if codec, ok := strings.CutPrefix(kind, "application/connect+"); ok {
		if len(body) < 5 || uint64(binary.BigEndian.Uint32(body[1:5])) > uint64(len(body)-5) {
			return errors.New("no whole message")
		}
		body = body[5 : 5+binary.BigEndian.Uint32(body[1:5])]
		kind = "application/" + codec
	}
	if kind == "application/json" {
		return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(body, m)
	}
	return proto.Unmarshal(body, m)
}

// commandOf is a command as a person would read it. Clients wrap commands in a shell.
func commandOf(p *processpb.ProcessConfig) string {
	args := p.GetArgs()
	if strings.HasSuffix(p.GetCmd(), "/bash") && len(args) == 3 && args[0] == "-l" && args[1] == "-c" {
		return args[2]
	}
	b, err := json.Marshal(append([]string{p.GetCmd()}, args...))
	if err != nil {
		return ""
	}
	return string(b)
}
