package boot

import (
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/ulikunitz/xz"
)

// maxKernel bounds an unpacked kernel, in bytes.
const maxKernel = 512 << 20

// What a bzImage's header holds, by the boot protocol of Linux on x86.
const (
	setupSects    = 0x1f1
	headerMagic   = 0x202
	versionOffset = 0x20e
	payloadOffset = 0x248
	payloadLength = 0x24c
	headerEnd     = 0x250
)

// openImage returns the ELF kernel in a bzImage, or data if it is an ELF kernel,
// and the kernel's version.
func openImage(data []byte) (image []byte, version string, err error) {
	image = data
	if !bytes.HasPrefix(data, []byte(elf.ELFMAG)) {
		payload, v, err := bzImage(data)
		if err != nil {
			return nil, "", err
		}
		if image, err = decompress(payload); err != nil {
			return nil, "", fmt.Errorf("unpack the kernel: %w", err)
		}
		version = v
	}
	if err := checkELF(image); err != nil {
		return nil, "", err
	}
	if version == "" {
		version = bannerVersion(image)
	}
	if version == "" {
		return nil, "", errors.New("the kernel image contains no version")
	}
	return image, version, nil
}

// bzImage finds the compressed kernel in a bzImage, and its version.
func bzImage(data []byte) (payload []byte, version string, err error) {
	if len(data) < headerEnd || string(data[headerMagic:headerMagic+4]) != "HdrS" {
		return nil, "", errors.New("it is neither a bzImage nor an ELF file")
	}
	at := func(offset int) int64 { return int64(binary.LittleEndian.Uint32(data[offset:])) }
	code := (int64(data[setupSects]) + 1) * 512
	from := code + at(payloadOffset)
	to := from + at(payloadLength)
	if from > int64(len(data)) || to > int64(len(data)) || from >= to {
		return nil, "", errors.New("the bzImage is cut short")
	}
	text := int64(binary.LittleEndian.Uint16(data[versionOffset:])) + 0x200
	if text > 0x200 && text < int64(len(data)) {
		line, _, _ := bytes.Cut(data[text:min(text+256, int64(len(data)))], []byte{0})
		version, _, _ = strings.Cut(string(line), " ")
	}
	return data[from:to], version, nil
}

// decompress unpacks a kernel according to the first bytes of its payload. Four bytes with its
// size may follow, which belong to no format.
func decompress(payload []byte) ([]byte, error) {
	magic := func(s string) bool { return bytes.HasPrefix(payload, []byte(s)) }
	switch {
	case magic("\x02\x21\x4c\x18"):
		return unlz4(payload)
	case magic("\x1f\x8b"):
		z, err := gzip.NewReader(bytes.NewReader(payload))
		if err != nil {
			return nil, err
		}
		z.Multistream(false)
		return readAll(z)
	case magic("\x28\xb5\x2f\xfd"):
		return unzstd(payload)
	case magic("\xfd7zXZ\x00"):
		if !bytes.HasSuffix(payload, []byte("YZ")) {
			payload = payload[:len(payload)-4]
		}
		z, err := xz.NewReader(bytes.NewReader(payload))
		if err != nil {
			return nil, err
		}
		return readAll(z)
	case magic("BZh"):
		return readAll(bzip2.NewReader(bytes.NewReader(payload[:max(0, len(payload)-4)])))
	case magic(elf.ELFMAG):
		return payload, nil
	}
	return nil, fmt.Errorf("its compression is not known (%x)", payload[:min(4, len(payload))])
}

// unlz4 unpacks LZ4's legacy format: blocks preceded by their length, ended by the size of the
// whole.
func unlz4(payload []byte) ([]byte, error) {
	const block = 8 << 20
	if len(payload) < 8 {
		return nil, io.ErrUnexpectedEOF
	}
	size := int(binary.LittleEndian.Uint32(payload[len(payload)-4:]))
	if size > maxKernel {
		return nil, fmt.Errorf("it has %d bytes, which is too much", size)
	}
	out := make([]byte, 0, size)
	buffer := make([]byte, block)
	for rest := payload[4 : len(payload)-4]; len(rest) > 0; {
		if len(rest) < 4 {
			return nil, io.ErrUnexpectedEOF
		}
		n := int(binary.LittleEndian.Uint32(rest))
		rest = rest[4:]
		if n > len(rest) {
			return nil, io.ErrUnexpectedEOF
		}
		got, err := lz4.UncompressBlock(rest[:n], buffer)
		if err != nil {
			return nil, err
		}
		out = append(out, buffer[:got]...)
		rest = rest[n:]
	}
	if len(out) != size {
		return nil, fmt.Errorf("it has %d bytes and not %d", len(out), size)
	}
	return out, nil
}

func unzstd(data []byte) ([]byte, error) {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxKernel), zstd.WithDecoderMaxWindow(1<<30))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	var header zstd.Header
	if err := header.Decode(data); err != nil {
		return nil, err
	}
	if err := z.Reset(bytes.NewReader(data)); err != nil {
		return nil, err
	}
	if header.HasFCS {
		if header.FrameContentSize > maxKernel {
			return nil, fmt.Errorf("it has %d bytes, which is too much", header.FrameContentSize)
		}
		out := make([]byte, header.FrameContentSize)
		_, err := io.ReadFull(z, out)
		return out, err
	}
	out, err := readAll(z)
	if len(out) > 0 && errors.Is(err, zstd.ErrMagicMismatch) {
		err = nil // the size behind it
	}
	return out, err
}

func readAll(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxKernel+1))
	if err == nil && len(data) > maxKernel {
		err = fmt.Errorf("it has more than %d bytes", maxKernel)
	}
	return data, err
}

// checkELF makes sure that a VMM can boot an image without a boot loader.
func checkELF(image []byte) error {
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return fmt.Errorf("the kernel is not an ELF file: %w", err)
	}
	if f.Class != elf.ELFCLASS64 || f.Machine != elf.EM_X86_64 {
		return fmt.Errorf("the kernel is for %v, not for x86-64", f.Machine)
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_NOTE || p.Filesz > maxKernel {
			continue
		}
		notes := make([]byte, p.Filesz)
		if _, err := p.ReadAt(notes, 0); err != nil {
			return fmt.Errorf("the kernel is cut short: %w", err)
		}
		if hasPVH(notes) {
			return nil
		}
	}
	return errors.New("the kernel has no entry for PVH")
}

// hasPVH looks for Xen's note with the address of the 32-bit entry.
func hasPVH(notes []byte) bool {
	const entry = 18
	align := func(n uint32) uint64 { return (uint64(n) + 3) &^ 3 }
	for len(notes) >= 12 {
		nameSize, descSize := binary.LittleEndian.Uint32(notes), binary.LittleEndian.Uint32(notes[4:])
		kind := binary.LittleEndian.Uint32(notes[8:])
		end := 12 + align(nameSize) + align(descSize)
		if end > uint64(len(notes)) {
			return false
		}
		if kind == entry && bytes.HasPrefix(notes[12:], []byte("Xen\x00")) {
			return true
		}
		notes = notes[end:]
	}
	return false
}

var banner = regexp.MustCompile(`Linux version ([0-9][^ \x00]*) \(`)

// bannerVersion finds the version in the line that the kernel prints first.
func bannerVersion(image []byte) string {
	if m := banner.FindSubmatch(image); m != nil {
		return string(m[1])
	}
	return ""
}
