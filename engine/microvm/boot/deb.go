package boot

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

const arMagic = "!<arch>\n"

// unpackDeb reads the kernel and the modules of a Debian kernel package.
func unpackDeb(r io.Reader) (unpacked, error) {
	u := unpacked{}
	files, err := packageFiles(r)
	if err != nil {
		return u, fmt.Errorf("the package cannot be read: %w", err)
	}
	set := newModuleSet()
	var image []byte
	for {
		h, err := files.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return u, fmt.Errorf("the package cannot be read: %w", err)
		}
		name := strings.TrimPrefix(path.Clean("/"+h.Name), "/")
		name = strings.TrimPrefix(name, "usr/")
		if h.Typeflag != tar.TypeReg || h.Size > maxKernel {
			continue
		}
		kernel := strings.HasPrefix(name, "boot/vmlinuz-")
		if !kernel && !strings.HasPrefix(name, "lib/modules/") {
			continue
		}
		data, err := io.ReadAll(files)
		if err != nil {
			return u, fmt.Errorf("the package cannot be read: %w", err)
		}
		if kernel {
			image = data
		} else if err := set.add(name, func() ([]byte, error) { return data, nil }); err != nil {
			return u, err
		}
	}
	if image == nil {
		return u, errors.New("the package holds no kernel")
	}
	if u.image, u.version, err = openImage(image); err != nil {
		return u, err
	}
	u.all = set
	u.modules, err = set.inOrder()
	return u, err
}

// packageFiles finds the files in a Debian package, which is an ar archive with a
// tar of them.
func packageFiles(r io.Reader) (*tar.Reader, error) {
	b := bufio.NewReaderSize(r, 1<<20)
	magic := make([]byte, len(arMagic))
	if _, err := io.ReadFull(b, magic); err != nil || string(magic) != arMagic {
		return nil, errors.New("it is not a Debian package")
	}
	for {
		header := make([]byte, 60)
		if _, err := io.ReadFull(b, header); err != nil {
			return nil, errors.New("it holds no files")
		}
		name := strings.TrimRight(string(header[:16]), " /")
		size, err := strconv.ParseInt(strings.TrimSpace(string(header[48:58])), 10, 64)
		if err != nil || size < 0 {
			return nil, errors.New("it is damaged")
		}
		if kind, ok := strings.CutPrefix(name, "data.tar"); ok {
			return untar(io.LimitReader(b, size), kind)
		}
		if _, err := io.CopyN(io.Discard, b, size+size%2); err != nil {
			return nil, err
		}
	}
}

func untar(r io.Reader, kind string) (*tar.Reader, error) {
	switch kind {
	case "":
		return tar.NewReader(r), nil
	case ".xz":
		z, err := xz.NewReader(r)
		if err != nil {
			return nil, err
		}
		return tar.NewReader(z), nil
	case ".gz":
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, err
		}
		return tar.NewReader(z), nil
	case ".zst":
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return tar.NewReader(z), nil
	}
	return nil, fmt.Errorf("its compression %s is not known", kind)
}
