package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"time"
)

// cgroupParent is the name that a server gives to the parent of its machines'
// cgroups.
func cgroupParent(home string) string {
	sum := sha256.Sum256([]byte(home))
	return "bothy-" + hex.EncodeToString(sum[:4])
}

// removeCgroup removes a group whose processes are just ending.
func removeCgroup(dir string) error {
	deadline := time.Now().Add(hangs)
	for {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if time.Now().After(deadline) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}
