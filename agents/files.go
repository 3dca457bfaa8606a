package agents

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/internal/failpoint"
)

const (
	// maxFile is how much of a text file is read at once, and the maximum size of one that is
	// edited.
	maxFile = 256 << 10
	// The service takes images of 5 MB in base64, and documents of a few more.
	maxImage = 3_750_000
	maxPDF   = 10 << 20

	typePDF = "application/pdf"
)

var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

type readInput struct {
	Path  string  `json:"file_path"`
	Range []int64 `json:"view_range"`
}

// open opens a regular file.
func (s *session) open(ctx context.Context, sandbox, name string) (io.ReadCloser, *bothy.FileInfo, error) {
	if name == "" {
		return nil, nil, errors.New("file_path is required")
	}
	files := s.worker.o.Files
	info, err := files.Stat(ctx, sandbox, in(name), bothy.DefaultUser)
	if err != nil {
		return nil, nil, err
	}
	if info.Type == bothy.FileDirectory || info.Type == bothy.FileOther {
		return nil, nil, fmt.Errorf("%s is not a regular file", name)
	}
	return files.Read(ctx, sandbox, in(name), bothy.DefaultUser)
}

func (s *session) read(ctx context.Context, sandbox string, in readInput) ([]block, error) {
	f, info, err := s.open(ctx, sandbox, in.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 64<<10)
	head, err := r.Peek(8 << 10)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch kind := http.DetectContentType(head); {
	case slices.Contains(imageTypes, kind):
		return whole(r, in.Path, kind, info.Size, maxImage)
	case kind == typePDF:
		return whole(r, in.Path, kind, info.Size, maxPDF)
	case bytes.IndexByte(head, 0) >= 0:
		return nil, fmt.Errorf("%s is a binary file (%s, %d bytes); look into it with bash", in.Path, kind, info.Size)
	}
	if in.Range != nil {
		return lines(r, in)
	}
	if info.Size > maxFile {
		return nil, fmt.Errorf("%s is %d bytes, exceeds %d-byte limit; give a view_range to read a part of it", in.Path, info.Size, maxFile)
	}
	b, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxFile {
		return nil, fmt.Errorf("%s exceeds %d-byte limit; give a view_range to read a part of it", in.Path, maxFile)
	}
	return checked(b, in.Path)
}

// whole reads a file that is not text.
func whole(r io.Reader, name, kind string, size, limit int64) ([]block, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s (%s) is %d bytes, exceeds %d-byte limit; make it smaller with bash", name, kind, size, limit)
	}
	return []block{{Type: kind, Data: base64.StdEncoding.EncodeToString(b)}}, nil
}

func checked(b []byte, name string) ([]block, error) {
	if !utf8.Valid(b) || bytes.IndexByte(b, 0) >= 0 {
		return nil, fmt.Errorf("%s is not UTF-8 text; look into it with bash", name)
	}
	return text(string(b)), nil
}

// lines reads a range of lines, from 1, both inclusive. A last one of 0 or less means the end of
// the file.
func lines(r *bufio.Reader, in readInput) ([]block, error) {
	if len(in.Range) != 2 || in.Range[0] < 1 || in.Range[1] > 0 && in.Range[1] < in.Range[0] {
		return nil, fmt.Errorf("view_range %v is not [first line, last line]", in.Range)
	}
	first, last := in.Range[0], in.Range[1]
	var out []byte
	n := int64(1)
	for last <= 0 || n <= last {
		piece, err := r.ReadSlice('\n')
		if n >= first {
			out = append(out, piece...)
			if len(out) > maxFile+1 {
				return nil, fmt.Errorf("view_range [%d, %d] of %s exceeds %d-byte limit; read a smaller range", first, last, in.Path, maxFile)
			}
		}
		switch {
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF:
			if n < first || n == first && len(out) == 0 && first > 1 {
				return nil, fmt.Errorf("%s has no line %d", in.Path, first)
			}
			return checked(out, in.Path)
		case err != nil:
			return nil, err
		}
		n++
	}
	return checked(bytes.TrimSuffix(out, []byte("\n")), in.Path)
}

type writeInput struct {
	Path    string `json:"file_path"`
	Content string `json:"content"`
}

func (s *session) write(ctx context.Context, sandbox string, in writeInput) ([]block, error) {
	if err := s.put(ctx, sandbox, in.Path, in.Content); err != nil {
		return nil, err
	}
	return text(fmt.Sprintf("wrote %d bytes to %s", len(in.Content), in.Path)), nil
}

// put writes a file, unless the agent may not write it.
func (s *session) put(ctx context.Context, sandbox, name, content string) error {
	if name == "" {
		return errors.New("file_path is required")
	}
	if root := s.memory.readOnly(in(name)); root != "" {
		return fmt.Errorf("%s is inside read-only directory %s", name, root)
	}
	_, err := s.worker.o.Files.Write(ctx, sandbox, in(name), strings.NewReader(content), bothy.WriteOptions{Size: int64(len(content))})
	return err
}

type editInput struct {
	Path    string `json:"file_path"`
	Old     string `json:"old_string"`
	New     string `json:"new_string"`
	Replace bool   `json:"replace_all"`
}

// editTool edits a file, unless an earlier server has done it.
func (s *session) editTool(ctx context.Context, sandbox, id string, raw json.RawMessage) ([]block, bool, error) {
	var in editInput
	if err := decode(raw, &in); err != nil {
		return nil, false, err
	}
	if in.Old == "" {
		return nil, false, errors.New("old_string is required")
	}
	f, info, err := s.open(ctx, sandbox, in.Path)
	if err != nil {
		return nil, false, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	f.Close()
	if err != nil {
		return nil, false, err
	}
	if sum := s.call(id).Sum; sum != "" && sum == sumOf(b) {
		return text("edited " + in.Path), false, nil
	}
	n := bytes.Count(b, []byte(in.Old))
	switch {
	case len(b) > maxFile:
		err = fmt.Errorf("%s is %d bytes, exceeds %d-byte limit; change it with bash", in.Path, info.Size, maxFile)
	case n == 0:
		err = fmt.Errorf("old_string not found in %s", in.Path)
	case n > 1 && !in.Replace:
		err = fmt.Errorf("old_string appears %d times in %s (must be unique)", n, in.Path)
	}
	if err != nil {
		return nil, false, err
	}
	b = bytes.ReplaceAll(b, []byte(in.Old), []byte(in.New))
	if err := s.note(ctx, id, callState{Sum: sumOf(b)}); err != nil {
		return nil, false, err
	}
	if err := s.put(ctx, sandbox, in.Path, string(b)); err != nil {
		return nil, false, err
	}
	_ = failpoint.Hit("agents.edited")
	return text(fmt.Sprintf("edited %s (%d replacement(s))", in.Path, n)), false, nil
}

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
