package erofs

import (
	"strings"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
)

// listXattr lists the attributes of a file that the caller may see.
func (i *inode) listXattr(creds *auth.Credentials, size uint64) ([]string, error) {
	names, length := []string{}, 0
	privileged := creds.HasRootCapability(linux.CAP_SYS_ADMIN)
	err := i.Xattrs(func(name string, _ []byte) bool {
		if privileged || !strings.HasPrefix(name, linux.XATTR_TRUSTED_PREFIX) {
			names, length = append(names, name), length+len(name)+1
		}
		return true
	})
	if err == nil && size != 0 && uint64(length) > size {
		err = linuxerr.ERANGE
	}
	return names, err
}

func (i *inode) getXattr(creds *auth.Credentials, opts *vfs.GetXattrOptions) (string, error) {
	mode, kuid := linux.FileMode(i.Mode()), auth.KUID(i.UID())
	if err := vfs.CheckXattrPermissions(creds, vfs.MayRead, mode, kuid, opts.Name); err != nil {
		return "", err
	}
	if strings.HasPrefix(opts.Name, linux.XATTR_USER_PREFIX) {
		if err := i.checkPermissions(creds, vfs.MayRead); err != nil {
			return "", err
		}
	}
	var value string
	found := false
	err := i.Xattrs(func(name string, v []byte) bool {
		if found = name == opts.Name; found {
			value = string(v)
		}
		return !found
	})
	switch {
	case err != nil:
		return "", err
	case !found:
		return "", linuxerr.ENODATA
	case opts.Size != 0 && uint64(len(value)) > opts.Size:
		return "", linuxerr.ERANGE
	case opts.Name == linux.XATTR_SECURITY_CAPABILITY:
		return auth.FixupVfsCapDataOnGet(creds, value)
	}
	return value, nil
}
