package gateway

import (
	"errors"

	"golang.org/x/crypto/cryptobyte"
)

const (
	// maxHello bounds a ClientHello with its records. Real ones have a few kilobytes, even with
	// post-quantum keys.
	maxHello = 32 << 10

	recordHeader       = 5
	maxRecord          = 16 << 10
	recordChangeCipher = 20
	recordHandshake    = 22
	clientHelloMessage = 1

	extServerName = 0x0000
	// Both forms of a server name that only the server can read: the abandoned draft, and
	// Encrypted ClientHello.
	extESNI = 0xffce
	extECH  = 0xfe0d
)

var (
	// errShort asks for more bytes.
	errShort        = errors.New("more bytes are needed")
	errNotHello     = errors.New("this is not a TLS ClientHello")
	errHelloTooLong = errors.New("the TLS ClientHello is too long")
	errECH          = errors.New("the server name is hidden by Encrypted ClientHello; switch that off in the client")
	errNoSNI        = errors.New("the TLS ClientHello names no server")
	errBadSNI       = errors.New("the server name in the TLS ClientHello is not one host name")
)

// parseHello reads a ClientHello from the beginning of b, over as many records as it takes. It
// returns the server name and the length of the records, errShort if b does not hold all of it,
// and another error for anything that the gateway cannot check.
func parseHello(b []byte) (sni string, used int, err error) {
	message, used, err := helloMessage(b)
	if err != nil {
		if err == errShort && len(b) >= maxHello {
			err = errHelloTooLong
		}
		return "", 0, err
	}
	sni, err = serverName(message)
	return sni, used, err
}

// helloMessage collects the handshake message from its records. The message
// must end where a record ends.
func helloMessage(b []byte) (message []byte, used int, err error) {
	for {
		if len(b)-used < recordHeader {
			return nil, 0, errShort
		}
		head := b[used : used+recordHeader]
		n := int(head[3])<<8 | int(head[4])
		if head[0] != recordHandshake || head[1] != 3 || n == 0 || n > maxRecord {
			return nil, 0, errNotHello
		}
		if len(b)-used-recordHeader < n {
			// The first byte of the message already shows whether waiting for the rest is
			// worthwhile.
			if used == 0 && len(b) > recordHeader && b[recordHeader] != clientHelloMessage {
				return nil, 0, errNotHello
			}
			return nil, 0, errShort
		}
		message = append(message, b[used+recordHeader:used+recordHeader+n]...)
		used += recordHeader + n
		if message[0] != clientHelloMessage {
			return nil, 0, errNotHello
		}
		if len(message) < 4 {
			continue
		}
		size := 4 + (int(message[1])<<16 | int(message[2])<<8 | int(message[3]))
		switch {
		case size > maxHello:
			return nil, 0, errHelloTooLong
		case len(message) == size:
			return message, used, nil
		case len(message) > size:
			return nil, 0, errNotHello
		}
	}
}

// serverName returns the one host name in a ClientHello message.
func serverName(message []byte) (string, error) {
	s := cryptobyte.String(message[4:])
	var session, suites, compression, extensions cryptobyte.String
	if !s.Skip(2+32) || !s.ReadUint8LengthPrefixed(&session) || !s.ReadUint16LengthPrefixed(&suites) ||
		!s.ReadUint8LengthPrefixed(&compression) {
		return "", errNotHello
	}
	if s.Empty() {
		return "", errNoSNI
	}
	if !s.ReadUint16LengthPrefixed(&extensions) || !s.Empty() {
		return "", errNotHello
	}
	name, found := "", false
	for !extensions.Empty() {
		var kind uint16
		var body cryptobyte.String
		if !extensions.ReadUint16(&kind) || !extensions.ReadUint16LengthPrefixed(&body) {
			return "", errNotHello
		}
		switch kind {
		case extECH, extESNI:
			return "", errECH
		case extServerName:
			var ok bool
			if name, ok = oneHostName(body); !ok || found {
				return "", errBadSNI
			}
			found = true
		}
	}
	if !found {
		return "", errNoSNI
	}
	return name, nil
}

// oneHostName parses a server name list that has exactly one entry.
func oneHostName(body cryptobyte.String) (string, bool) {
	var list, name cryptobyte.String
	var kind uint8
	if !body.ReadUint16LengthPrefixed(&list) || !body.Empty() ||
		!list.ReadUint8(&kind) || kind != 0 || !list.ReadUint16LengthPrefixed(&name) || !list.Empty() {
		return "", false
	}
	if !isASCII(string(name)) {
		return "", false
	}
	return canonicalName(string(name))
}

// tlsAlert is the record that tells a TLS client that access is denied.
var tlsAlert = []byte{21, 3, 3, 0, 2, 2, 49}
