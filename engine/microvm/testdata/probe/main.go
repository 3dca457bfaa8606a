// Command probe is what the tests run inside a machine.
package main

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	var arg string
	if len(os.Args) > 2 {
		arg = os.Args[2]
	}
	switch os.Args[1] {
	case "exit":
	case "eat": // so many MB, and hold them
		n, _ := strconv.Atoi(arg)
		b := make([]byte, n<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = byte(i>>12) | 1
		}
		fmt.Println("ate", n)
		for {
			time.Sleep(time.Hour)
			_ = b[0]
		}
	case "scatter": // take so many MB, with a page of a file after each half MB, and end
		n, _ := strconv.Atoi(arg)
		f, err := os.Create(os.Args[3])
		check(err)
		b := make([]byte, n<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = byte(i>>12) | 1
			if i%(512<<10) == 0 {
				_, err := f.Write(b[i : i+4096])
				check(err)
			}
		}
	case "tick": // count in a file, for ever
		for n := 0; ; n++ {
			check(os.WriteFile(arg+".new", []byte(strconv.Itoa(n)), 0o644))
			check(os.Rename(arg+".new", arg))
			time.Sleep(5 * time.Millisecond)
		}
	case "write": // so many MB into a file that is not there yet
		n, _ := strconv.Atoi(os.Args[3])
		f, err := os.Create(arg)
		check(err)
		b := make([]byte, 1<<20)
		_, _ = rand.Read(b)
		for range n {
			_, err := f.Write(b)
			check(err)
		}
		check(f.Sync())
	case "now":
		b := make([]byte, 16)
		_, _ = rand.Read(b)
		fmt.Println(time.Now().UnixNano(), hex.EncodeToString(b))
	case "cat":
		b, err := os.ReadFile(arg)
		if !os.IsNotExist(err) {
			check(err)
		}
		os.Stdout.Write(b)
	case "change": // files for the tar
		check(os.Remove("/etc/gone"))
		check(os.RemoveAll("/etc/opaque"))
		check(os.Mkdir("/etc/opaque", 0o750))
		check(os.WriteFile("/etc/opaque/new", []byte("new"), 0o640))
		check(os.Link("/etc/opaque/new", "/etc/linked"))
		check(os.Symlink("/etc/linked", "/etc/symbolic"))
		check(os.Chown("/etc/opaque/new", 12, 34))
		check(syscall.Setxattr("/etc/opaque/new", "user.colour", []byte("blue"), 0))
	case "changed":
		var st syscall.Stat_t
		_, gone := os.Stat("/etc/gone")
		_, old := os.Stat("/etc/opaque/old")
		to, _ := os.Readlink("/etc/symbolic")
		linked, _ := os.ReadFile("/etc/linked")
		_ = syscall.Stat("/etc/opaque/new", &st)
		value := make([]byte, 16)
		n, _ := syscall.Getxattr("/etc/opaque/new", "user.colour", value)
		fmt.Println(os.IsNotExist(gone), os.IsNotExist(old), to, string(linked), st.Uid, st.Gid, st.Nlink, string(value[:max(n, 0)]))
	case "attack":
		attack()
	case "rights":
		rights()
	case "contain": // count in a file, as "tick", in a cgroup and namespaces of its own
		contain(arg)
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// attack tries, as root, what must not succeed, and prints what did.
func attack() {
	try := func(what string, err error) {
		if err == nil {
			fmt.Println(what)
		}
	}
	device := func(kind uint32, major, minor int) error {
		path := "/workspace/device"
		_ = os.Remove(path)
		if err := syscall.Mknod(path, kind|0o600, major<<8|minor); err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err == nil {
			f.Close()
		}
		return err
	}
	for _, disk := range []string{"vda", "vdb", "vdc"} {
		b, err := os.ReadFile("/sys/block/" + disk + "/dev")
		if err != nil {
			continue
		}
		major, minor, _ := strings.Cut(strings.TrimSpace(string(b)), ":")
		a, _ := strconv.Atoi(major)
		i, _ := strconv.Atoi(minor)
		try("open the disk "+disk, device(syscall.S_IFBLK, a, i))
	}
	try("open the console", device(syscall.S_IFCHR, 4, 64))
	try("open the memory", device(syscall.S_IFCHR, 1, 1))
	try("open the kernel's log", device(syscall.S_IFCHR, 1, 11))
	for port := range 4 {
		for major := 240; major < 255; major++ {
			try("open a port", device(syscall.S_IFCHR, major, port))
		}
	}
	try("kill process 1", func() error {
		_ = syscall.Kill(1, syscall.SIGKILL)
		time.Sleep(50 * time.Millisecond)
		return syscall.ESRCH // the one who asked for this sees whether it lives
	}())
	if _, _, e := syscall.RawSyscall(syscall.SYS_PRCTL, 0x626f7468, 0, 0); e == 0 {
		fmt.Println("say that the sandbox was adopted")
	}
	entries, _ := os.ReadDir("/proc")
	for _, d := range entries {
		b, err := os.ReadFile("/proc/" + d.Name() + "/comm")
		if err == nil && strings.TrimSpace(string(b)) == "init" {
			fmt.Println("see the supervisor")
		}
	}
}
