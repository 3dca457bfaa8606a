package snapshot

import (
	"encoding/hex"
	"strings"

	"github.com/bothy-dev/bothy"
)

const (
	// maxParts is more than any engine writes.
	maxParts = 64
	// maxPartBytes keeps sums of sizes from overflowing.
	maxPartBytes = 1 << 44
)

// check validates the parts in an untrusted manifest, and returns their total size.
func (m *Manifest) check() (total int64, err error) {
	if len(m.Parts) > maxParts {
		return 0, damaged("its manifest has %d parts", len(m.Parts))
	}
	seen := map[string]bool{}
	for _, p := range m.Parts {
		switch {
		case p.Name != FilesTar && !isMemoryPart(p.Name):
			return 0, damaged("its manifest names %q", p.Name)
		case seen[p.Name]:
			return 0, damaged("its manifest names %s twice", p.Name)
		case p.Size < 0 || p.Size > maxPartBytes:
			return 0, damaged("its manifest says that %s has %d bytes", p.Name, p.Size)
		case p.Stored < 0 || p.Stored > p.Size:
			return 0, damaged("its manifest says that %s takes up %d of its %d bytes", p.Name, p.Stored, p.Size)
		case !isHex(p.CRC32C, 4) || !isHex(p.SHA256, 32):
			return 0, damaged("its manifest has no checksum of %s", p.Name)
		}
		seen[p.Name] = true
		total += p.Size
	}
	switch {
	case !seen[FilesTar]:
		return 0, damaged("%s is missing", FilesTar)
	case m.Kind != bothy.SnapshotMemory && m.Kind != bothy.SnapshotFiles:
		return 0, damaged("its manifest is of kind %q", m.Kind)
	case (m.Kind == bothy.SnapshotMemory) != m.Has(MemoryDir):
		return 0, damaged("its manifest is of kind %s, but its parts are not", m.Kind)
	}
	return total, nil
}

func isHex(s string, bytes int) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == bytes
}

// isMemoryPart accepts plain names below the memory folder.
func isMemoryPart(name string) bool {
	base, ok := strings.CutPrefix(name, MemoryDir+"/")
	plain := !strings.ContainsFunc(base, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	})
	return ok && plain && base != "" && base != "." && base != ".." && len(base) <= 64
}

// dropMemory turns the manifest into one with files only.
func (m *Manifest) dropMemory(why string) {
	m.GuestKey = ""
	if m.Kind == bothy.SnapshotFiles {
		return
	}
	m.Kind, m.Detail = bothy.SnapshotFiles, why
	for _, p := range m.Parts {
		if p.Name == FilesTar {
			m.Parts = []Part{p}
		}
	}
}
