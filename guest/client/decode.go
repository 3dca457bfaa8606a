package client

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// An answer consists of parts: messages, and the elements of lists and maps. Each takes memory
// however short it is: an empty entry of a folder has two bytes, and hundreds when it has been
// decoded and passed on. So parts are limited and accounted for like bytes.
const (
	maxParts   = 4096
	maxEntries = 50_000 // of a listing, as in the guest
	partSize   = 768
)

var errTooManyParts = errors.New("the guest's answer has too many parts")

// partsOf counts the parts of a message, and fails if there are more than most.
func partsOf(b []byte, d protoreflect.MessageDescriptor, most int) (parts int, err error) {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0, protowire.ParseError(n)
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return 0, protowire.ParseError(n)
		}
		value := b[:n]
		b = b[n:]
		field := d.Fields().ByNumber(number)
		if field == nil {
			continue // it is not decoded
		}
		inner := field.Message()
		switch {
		case inner != nil || field.IsList() && !field.IsPacked():
			parts++
		case field.IsList():
			parts += n
		}
		if parts > most {
			return 0, errTooManyParts
		}
		if inner == nil || kind != protowire.BytesType {
			continue
		}
		value, _ = protowire.ConsumeBytes(value)
		more, err := partsOf(value, inner, most-parts)
		if err != nil {
			return 0, err
		}
		parts += more
	}
	return parts, nil
}

// decode decodes a message whose parts have been counted.
func decode(b []byte, m proto.Message) error {
	return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(b, m)
}
