package gvisor

import (
	"fmt"
	"os"
	"path/filepath"
)

// specFile is the name under which the library's command looks for the spec.
const specFile = "config.json"

// writeBundle puts the spec where the sentry looks for it.
func writeBundle(dir string, spec []byte) error {
	if err := os.MkdirAll(filepath.Join(dir, "root"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, specFile), spec, 0o644); err != nil {
		return fmt.Errorf("write the machine's spec: %w", err)
	}
	return nil
}
