package pgserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// account is the unprivileged account that runs watchdog and server for root. Nil means that they run as the
// current user.
type account struct {
	Name     string
	UID, GID int
}

// serverAccount returns nil unless the current user is root. For root it returns the account postgres, or
// nobody if there is no postgres.
func serverAccount() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // nil is the current user, by the type's definition
	}
	for _, name := range []string{"postgres", "nobody"} {
		a, err := lookupAccount(name)
		if !errors.As(err, new(user.UnknownUserError)) {
			return a, err
		}
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and there is no account postgres or nobody to run it as: " +
		"add one, run belfry as another user, or set BELFRY_DATABASE_URL")
}

// Credential returns the account for servers that this process starts. Nil means the current user.
func Credential() (*syscall.Credential, error) {
	a, err := serverAccount()
	return a.credential(), err
}

func lookupAccount(name string) (*account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("look up account %s: %w", name, err)
	}
	uid, errU := strconv.Atoi(u.Uid)
	gid, errG := strconv.Atoi(u.Gid)
	return &account{Name: name, UID: uid, GID: gid}, errors.Join(errU, errG)
}

// ownerOf returns the account that owns path. It does not follow symbolic links.
func ownerOf(path string) (*account, error) {
	var stat unix.Stat_t
	if err := unix.Lstat(path, &stat); err != nil {
		return nil, fmt.Errorf("owner of %s: %w", path, err)
	}
	return &account{Name: strconv.Itoa(int(stat.Uid)), UID: int(stat.Uid), GID: int(stat.Gid)}, nil
}

// become drops the rights of root in favour of the account's rights.
func (a *account) become() error {
	if a == nil {
		return nil
	}
	if err := errors.Join(syscall.Setgroups([]int{}), syscall.Setgid(a.GID), syscall.Setuid(a.UID)); err != nil {
		return fmt.Errorf("become %s: %w", a.Name, err)
	}
	return nil
}

// canEnter reports whether the account may enter dir, or the nearest existing parent of a missing directory.
func (a *account) canEnter(dir string) bool {
	if a == nil || a.UID == 0 {
		return true
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			break
		}
	}
	// It ends by itself; dir is an argument, not part of the script.
	cmd := exec.Command("/bin/sh", "-c", `cd "$1"`, "sh", dir) //nolint:noctx,gosec // see above
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.credential()}
	return cmd.Run() == nil
}

func (a *account) credential() *syscall.Credential {
	if a == nil {
		return nil
	}
	return &syscall.Credential{Uid: uint32(a.UID), Gid: uint32(a.GID)} //nolint:gosec // ids of accounts are 32 bits
}
