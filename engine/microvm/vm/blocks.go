package vm

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// BlockMB is the unit by which a machine's memory grows.
const BlockMB = 128

const (
	blocksDir = "/sys/devices/system/memory"
	offline   = "offline"
	online    = "online"
)

// blocks are the part of a machine's memory that it does not use until its limits are
// raised.
type blocks struct {
	// aside are the names of the offline blocks; the next to use is last.
	aside []string
	// used is how many spare blocks are in use anyway.
	used int
}

// offlineBlocks takes n blocks offline. The kernel keeps blocks that hold unmovable memory. If too
// few others are left, or the kernel does not support it, the blocks stay in use, and the host's
// balloon must take them.
func offlineBlocks(n int) blocks {
	s := blocks{used: n}
	size, err := os.ReadFile(blocksDir + "/block_size_bytes")
	if err != nil {
		return s
	}
	if bytes, err := strconv.ParseInt(strings.TrimSpace(string(size)), 16, 64); err != nil || bytes != BlockMB<<20 {
		return s
	}
	all, _ := filepath.Glob(blocksDir + "/memory[0-9]*")
	// By number: a longer name has a higher one.
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
	for _, block := range slices.Backward(all) {
		if s.used == 0 {
			break
		}
		if write(block+"/state", offline) == nil {
			s.aside = append(s.aside, block)
			s.used--
		}
	}
	return s
}

// setOnline puts at least n blocks online.
func (s *blocks) setOnline(n int) error {
	for s.used < n && len(s.aside) > 0 {
		last := len(s.aside) - 1
		if err := write(s.aside[last]+"/state", online); err != nil {
			return err
		}
		s.aside = s.aside[:last]
		s.used++
	}
	if s.used < n {
		return fmt.Errorf("there are %d blocks of memory, and not %d", s.used, n)
	}
	return nil
}
