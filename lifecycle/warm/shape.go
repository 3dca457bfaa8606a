package warm

import (
	"fmt"
	"math"
	"strings"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/store"
)

// class is what cannot be changed about an existing machine. Machines of the same class are
// interchangeable.
type class struct {
	engine string
	digest string // of the template's image
	// cpus is the number of visible processors. How much of them may be used can be changed.
	cpus     int
	memoryMB int
	diskMB   int
	// memory is the snapshot that it is restored from, if any.
	memory string
}

func classOf(sb *store.Sandbox, memory string) class {
	return class{
		engine: sb.Engine, digest: sb.TemplateDigest,
		cpus: int(math.Ceil(sb.CPU)), memoryMB: sb.MemoryMB, diskMB: sb.DiskMB, memory: memory,
	}
}

// memoryClass is the class of machines restored from a template's memory.
func memoryClass(m *bothy.TemplateMemory) class {
	return class{
		engine: m.Engine, digest: m.BaseDigest, cpus: int(math.Ceil(m.CPU)), memoryMB: m.MemoryMB, diskMB: m.DiskMB, memory: m.SnapshotID,
	}
}

func (h class) String() string {
	size := fmt.Sprintf("%.12s %d CPU %d MB %d MB", strings.TrimPrefix(h.digest, "sha256:"), h.cpus, h.memoryMB, h.diskMB)
	if h.memory != "" {
		size += " with the processes of " + h.memory
	}
	return size
}

// sandbox returns a sandbox of this class without an owner, which is not stored.
func (h class) sandbox(id string, t *store.Template) *store.Sandbox {
	return &store.Sandbox{
		Sandbox: bothy.Sandbox{
			ID: id, Template: t.Name, Engine: h.engine,
			CPU: float64(h.cpus), MemoryMB: h.memoryMB, DiskMB: h.diskMB,
			Network: bothy.Network{Mode: bothy.NetworkOff},
		},
		TemplateDigest: h.digest,
	}
}

// defaultShape returns the class for a request that gives only a template, and the template
// with its files.
func (s *Pool) defaultShape(t *store.Template) (class, *store.Template, error) {
	if m := t.Memory; m != nil {
		files, err := s.o.Known.Lookup(m.BaseDigest)
		return memoryClass(m), files, err
	}
	return class{
		engine: s.o.Engines.Default(), digest: t.Digest,
		cpus: int(math.Ceil(bothy.DefaultCPU)), memoryMB: bothy.DefaultMemoryMB, diskMB: bothy.DefaultDiskMB,
	}, t, nil
}
