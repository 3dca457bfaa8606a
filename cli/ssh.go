package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/coder/websocket"
	"github.com/spf13/cobra"

	"github.com/bothy-dev/bothy"
	"github.com/bothy-dev/bothy/client"
)

const (
	// sshDomain is the ending by which ssh tells sandboxes from other hosts.
	sshDomain = ".bothy"
	// sshDefaultUser stands for the sandbox's own user, because ssh always names one.
	sshDefaultUser = "default"
	// maxKnownHosts limits the file of host keys: the newer half is kept then.
	maxKnownHosts = 256 << 10
)

func newSSH(a *app) *cobra.Command {
	var user string
	var stdio bool
	cmd := &cobra.Command{
		Use:   "ssh SANDBOX [flags] [-- COMMAND…]",
		Short: "Connect to a sandbox with OpenSSH; exits with ssh's code",
		Long: `Connect to a sandbox with this computer's ssh: a shell, or a command. The
connection goes through the API, so no port is open anywhere, and the API's key is
all that is needed. For scp, rsync, forwarded ports and editors see ssh-config.

Sessions start in the user's home. What they leave running goes on.`,
		Example: `  bothy ssh sbx4f2a
  bothy ssh sbx4f2a -- uname -a
  bothy ssh -u root sbx4f2a`,
		Args: usage(cobra.MinimumNArgs(1)),
	}
	cmd.Flags().StringVarP(&user, "user", "u", "", "`user` that logs in (default the sandbox's own)")
	cmd.Flags().BoolVar(&stdio, "stdio", false, "connect standard input and output with the SSH server, as ssh's ProxyCommand")
	takesCommand(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		words, err := commandAfter(cmd, args)
		if err != nil {
			return err
		}
		s, err := a.connect()
		if err != nil {
			return err
		}
		host := args[0]
		named, err := s.named(cmd.Context(), cmd, []string{strings.TrimSuffix(host, sshDomain)})
		if err != nil {
			return err
		}
		if stdio {
			if len(words) > 0 {
				return usagef("Give the command to ssh.", "--stdio takes no command")
			}
			return a.sshStdio(cmd.Context(), s, named[0], host, user)
		}
		return a.ssh(named[0], user, words)
	}
	return cmd
}

func newSSHConfig(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ssh-config",
		Short: "Print lines for ~/.ssh/config, with which ssh, scp and editors reach sandboxes",
		Long: `Print lines for ~/.ssh/config. With them ssh, scp, sftp, rsync and editors reach a
sandbox as SANDBOX.bothy, where SANDBOX is an id or a name in lower case. They run
bothy ssh --stdio, which connects through the API and records the sandbox's host
key in a file of its own, so that ssh asks nothing.`,
		Example: `  bothy ssh-config >> ~/.ssh/config
  ssh sbx4f2a.bothy
  scp -r src sbx4f2a.bothy:/workspace/`,
		Args: usage(cobra.NoArgs),
	}
	cmd.RunE = func(*cobra.Command, []string) error {
		options, err := a.sshOptions()
		if err != nil {
			return err
		}
		var b strings.Builder
		fmt.Fprintf(&b, "Host *%s\n", sshDomain)
		for _, o := range options {
			fmt.Fprintf(&b, "  %s %s\n", o[0], o[1])
		}
		_, err = io.WriteString(a.stdout, b.String())
		return err
	}
	return cmd
}

// sshOptions are the settings with which ssh reaches sandboxes.
func (a *app) sshOptions() ([][2]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	known, err := knownHostsPath()
	if err != nil {
		return nil, err
	}
	proxy := sshQuote(self)
	if a.url != "" {
		proxy += " --url " + sshQuote(a.url)
	}
	return [][2]string{
		{"User", sshDefaultUser},
		{"ProxyCommand", proxy + " ssh --stdio --user %r %h"},
		{"UserKnownHostsFile", sshQuote(known)},
		{"GlobalKnownHostsFile", os.DevNull},
		{"StrictHostKeyChecking", "yes"},
		{"UpdateHostKeys", "no"},
		{"ForwardAgent", "no"},
		{"ServerAliveInterval", "30"},
	}, nil
}

// sshQuote quotes a word for ssh's configuration and the shell that runs its ProxyCommand.
func sshQuote(word string) string {
	word = strings.ReplaceAll(word, "%", "%%")
	if runtime.GOOS == "windows" {
		word = filepath.ToSlash(word)
	}
	if strings.ContainsAny(word, " \t") {
		return `"` + word + `"`
	}
	return word
}

func knownHostsPath() (string, error) {
	credentials, err := client.CredentialsPath()
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(credentials), "ssh_known_hosts"), nil
}

// ssh runs this computer's ssh.
func (a *app) ssh(id, user string, words []string) error {
	program, err := exec.LookPath("ssh")
	if err != nil {
		return bothy.Errorf(bothy.CodeUnsupported, "there is no ssh on this computer").
			WithHint("Install OpenSSH's client, or use `bothy sh`, which needs none.").Because(err)
	}
	options, err := a.sshOptions()
	if err != nil {
		return err
	}
	var args []string
	for _, o := range options {
		args = append(args, "-o", o[0]+"="+o[1])
	}
	if user != "" {
		args = append(args, "-l", user)
	} else {
		args = append(args, "-l", sshDefaultUser)
	}
	args = append(args, id+sshDomain)
	if len(words) > 0 {
		args = append(args, "--", shellLine(words))
	}
	cmd := exec.Command(program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.stdin, a.stdout, a.stderr
	var exit *exec.ExitError
	if err := cmd.Run(); !errors.As(err, &exit) {
		return err
	}
	return exitCode(exit.ExitCode())
}

// sshStdio carries one SSH connection between standard input and output and the sandbox. Before
// the first byte it records the host key, which ssh reads after the server's first line.
func (a *app) sshStdio(ctx context.Context, s *session, id, host, user string) error {
	if user == sshDefaultUser {
		user = ""
	}
	conn, key, err := s.ports.DialSSH(ctx, id, user)
	if err != nil {
		return err
	}
	defer conn.Close()
	path, err := knownHostsPath()
	if err != nil {
		return err
	}
	if err := rememberHost(path, host, key); err != nil {
		return fmt.Errorf("cannot record the host key: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	left := make(chan struct{})
	go func() {
		_, _ = io.Copy(conn, a.stdin)
		close(left)
		conn.Close()
	}()
	_, err = io.Copy(a.stdout, conn)
	select {
	case <-left:
		return nil
	default:
	}
	var closed websocket.CloseError
	switch {
	case errors.As(err, &closed) && closed.Reason != "":
		return errors.New(closed.Reason)
	case err == nil || errors.Is(err, net.ErrClosed) || ctx.Err() != nil:
		return nil
	}
	return fmt.Errorf("the connection broke off: %w", err)
}

// rememberHost makes a file of known hosts say that a host has a key, and no other.
func rememberHost(path, host, key string) error {
	if strings.ContainsAny(host+key, "\r\n") || strings.ContainsAny(host, " \t,*?!|@#") || len(strings.Fields(key)) != 2 {
		return fmt.Errorf("%q is not a name, or %q not a key", host, key)
	}
	line := host + " " + key
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var rest bytes.Buffer
	stale, found := false, false
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		switch l := lines.Text(); {
		case l == line:
			found = true
			rest.WriteString(l + "\n")
		case strings.HasPrefix(l, host+" "):
			stale = true
		default:
			rest.WriteString(l + "\n")
		}
	}
	if found && !stale {
		return nil
	}
	if !stale && len(text) < maxKnownHosts {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = f.WriteString(line + "\n")
		return errors.Join(err, f.Close())
	}
	kept := rest.Bytes()
	if len(kept) >= maxKnownHosts {
		kept = kept[len(kept)/2:]
		kept = kept[bytes.IndexByte(kept, '\n')+1:]
	}
	f, err := os.CreateTemp(filepath.Dir(path), "ssh_known_hosts-*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(kept, line+"\n"...))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
