package boot

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cavaliergopher/cpio"

	"github.com/bothy-dev/bothy/engine/microvm/vm"
)

// initramfs makes the archive that the kernel unpacks as its first file system:
// /init, the modules that it needs in /lib/modules, and /modules, which names them in the order in
// which to load them, a path in each line. Its bytes depend on its contents alone.
func initramfs(k kernel, init []byte) ([]byte, error) {
	var out bytes.Buffer
	w := cpio.NewWriter(&out)
	put := func(name string, mode cpio.FileMode, data []byte) error {
		err := w.WriteHeader(&cpio.Header{Name: name, Mode: mode, Size: int64(len(data)), ModTime: time.Unix(0, 0), Links: 1})
		if err != nil || len(data) == 0 {
			return err
		}
		_, err = w.Write(data)
		return err
	}
	for _, dir := range []string{"dev", "proc", "sys", "sbin", "lib", "lib/modules"} {
		if err := put(dir, cpio.TypeDir|0o755, nil); err != nil {
			return nil, err
		}
	}
	if err := put("init", cpio.TypeReg|0o755, init); err != nil {
		return nil, err
	}
	// The kernel runs this when a module is requested.
	if err := put(strings.TrimPrefix(vm.Modprobe, "/"), cpio.TypeSymlink|0o777, []byte("/init")); err != nil {
		return nil, err
	}
	var order strings.Builder
	for _, m := range k.Modules {
		data, err := os.ReadFile(filepath.Join(k.dir, m))
		if err != nil {
			return nil, err
		}
		if err := put("lib/modules/"+m, cpio.TypeReg|0o644, data); err != nil {
			return nil, err
		}
		order.WriteString("/lib/modules/" + m + "\n")
	}
	if err := put("modules", cpio.TypeReg|0o644, []byte(order.String())); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
