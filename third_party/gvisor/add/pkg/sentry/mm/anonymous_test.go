package mm

import (
	"slices"
	"testing"

	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

type file struct {
	memmap.File
	name string
}

type mapped struct{ memmap.Mappable }

func TestAnonymousMemory(t *testing.T) {
	type place struct {
		hostarch.AddrRange
		off uint64
	}
	const page = hostarch.PageSize
	pages := func(from, to uintptr) hostarch.AddrRange {
		return hostarch.AddrRange{Start: hostarch.Addr(from * page), End: hostarch.Addr(to * page)}
	}
	memory, other := &file{name: "memory"}, &file{name: "other"}
	var m MemoryManager
	for _, v := range []struct {
		hostarch.AddrRange
		of memmap.Mappable
	}{{pages(0, 10), nil}, {pages(10, 20), mapped{}}, {pages(20, 30), nil}, {pages(40, 50), nil}} {
		m.vmas.InsertWithoutMergingRange(v.AddrRange, vma{mappable: v.of})
	}
	for _, p := range []struct {
		place
		private bool
		file    *file
	}{
		{place{pages(1, 3), 100 * page}, true, memory},
		{place{pages(4, 5), 200 * page}, false, memory},
		{place{pages(5, 6), 300 * page}, true, other},
		{place{pages(6, 10), 400 * page}, true, memory},
		{place{pages(12, 14), 500 * page}, true, memory}, // a copy of what is in a file
		{place{pages(20, 30), 600 * page}, true, memory},
		{place{pages(44, 46), 700 * page}, true, memory},
	} {
		m.pmas.InsertWithoutMergingRange(p.AddrRange, pma{file: p.file, off: p.off, private: p.private})
	}
	var got []place
	m.AnonymousMemory(memory, func(ar hostarch.AddrRange, off uint64) { got = append(got, place{ar, off}) })
	want := []place{{pages(1, 3), 100 * page}, {pages(6, 10), 400 * page}, {pages(20, 30), 600 * page}, {pages(44, 46), 700 * page}}
	if !slices.Equal(got, want) {
		t.Errorf("it visits %v, want %v", got, want)
	}
}
