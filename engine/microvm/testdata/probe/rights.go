package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// rights does, as root, what the programs need that run containers, or are the first of
// a system, and prints what it could not do.
func rights() {
	try := func(what string, err error) {
		if err != nil {
			fmt.Printf("%s: %v\n", what, err)
		}
	}
	must := func(dir string) string {
		try("make "+dir, os.MkdirAll(dir, 0o755))
		return dir
	}
	try("mount a tmpfs", syscall.Mount("tmpfs", must("/workspace/mnt"), "tmpfs", 0, "size=1m"))
	try("unmount it", syscall.Unmount("/workspace/mnt", 0))
	try("bind a folder", syscall.Mount("/etc", "/workspace/mnt", "", syscall.MS_BIND, ""))
	try("unmount that", syscall.Unmount("/workspace/mnt", 0))
	try("make mounts shared", syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, ""))
	for name, in := range map[string]uintptr{
		"mounts": syscall.CLONE_NEWNS, "processes": syscall.CLONE_NEWPID, "networks": syscall.CLONE_NEWNET, "users": syscall.CLONE_NEWUSER,
	} {
		c := exec.Command("/probe", "exit")
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: in}
		try("a namespace of "+name, c.Run())
	}
	try("write a setting of the kernel", os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0))
	try("trace process 1", syscall.PtraceAttach(1))
	_ = syscall.PtraceDetach(1)
	try("make a node of any device", syscall.Mknod("/workspace/any", syscall.S_IFBLK|0o600, 259<<8))

	// What no module is loaded for yet.
	for name, family := range map[string]int{"netfilter": 12} {
		fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW, family)
		try("a socket of "+name, err)
		_ = syscall.Close(fd)
	}
	_, err := os.Stat("/lib/modules/" + release() + "/modules.dep")
	try("find the modules", err)
	for _, dev := range []string{"/dev/loop-control", "/dev/loop0", "/dev/fuse", "/dev/net/tun"} {
		f, err := os.OpenFile(dev, os.O_RDWR, 0)
		try("open "+dev, err)
		_ = f.Close()
	}
	try("mount a squashfs says what is wrong with it", func() error {
		err := syscall.Mount("/dev/loop0", "/workspace/mnt", "squashfs", syscall.MS_RDONLY, "")
		if err == syscall.ENODEV { // the kernel knows no such file system
			return err
		}
		return nil
	}())
	group := "/sys/fs/cgroup/container"
	try("make a cgroup", os.Mkdir(group, 0o755))
	for _, c := range []string{"+memory", "+pids"} {
		try("give it "+c, os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte(c), 0))
	}
	try("limit it", os.WriteFile(group+"/memory.max", []byte("10000000"), 0))
	try("enter it", os.WriteFile(group+"/cgroup.procs", []byte("0"), 0))
}

func release() string {
	b, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return strings.TrimSpace(string(b))
}

// contain runs "tick" as a container would.
func contain(file string) {
	group := filepath.Join("/sys/fs/cgroup/box", "inner")
	check(os.MkdirAll(group, 0o755))
	check(os.WriteFile(group+"/cgroup.procs", []byte("0"), 0))
	c := exec.Command("/probe", "tick", file)
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS}
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	check(c.Run())
}
