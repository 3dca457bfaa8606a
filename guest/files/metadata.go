package files

import (
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bothy-dev/bothy"
)

// metadataPrefix begins the names of the extended attributes for the metadata that
// E2B's clients set on files.
const metadataPrefix = "user.e2b."

// maxMetadata limits what is read of a file's attributes.
const maxMetadata = 64 << 10

// setMetadata replaces all metadata of a file with m.
func setMetadata(file *os.File, m map[string]string) error {
	fd := int(file.Fd())
	for _, name := range attributes(func(b []byte) (int, error) { return unix.Flistxattr(fd, b) }) {
		if err := unix.Fremovexattr(fd, name); err != nil {
			return err
		}
	}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if err := unix.Fsetxattr(fd, metadataPrefix+strings.ToLower(k), []byte(m[k]), 0); err != nil {
			return bothy.Errorf(bothy.CodeInvalid, "the metadata %q cannot be stored with the file: %v", k, err).
				WithHint("Give fewer and shorter entries: a file system keeps some KiB of them.").Because(err)
		}
	}
	return nil
}

// Metadata returns the metadata that an E2B client set on a file, or nil.
func Metadata(path string) map[string]string {
	var m map[string]string
	for _, name := range attributes(func(b []byte) (int, error) { return unix.Llistxattr(path, b) }) {
		value := make([]byte, maxMetadata)
		n, err := unix.Lgetxattr(path, name, value)
		if err != nil {
			continue
		}
		if m == nil {
			m = map[string]string{}
		}
		m[strings.ToValidUTF8(strings.TrimPrefix(name, metadataPrefix), "?")] = strings.ToValidUTF8(string(value[:n]), "?")
	}
	return m
}

// attributes lists the attributes that are metadata.
func attributes(list func([]byte) (int, error)) (names []string) {
	n, err := list(nil)
	if err != nil || n == 0 || n > maxMetadata {
		return nil
	}
	b := make([]byte, n)
	if n, err = list(b); err != nil {
		return nil
	}
	for name := range strings.SplitSeq(string(b[:n]), "\x00") {
		if strings.HasPrefix(name, metadataPrefix) {
			names = append(names, name)
		}
	}
	return names
}
