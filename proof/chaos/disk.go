package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// mount makes a small disk of a folder. Only root may do so.
func mount(ctx context.Context, folder string, owner *syscall.Credential) error {
	options := "size=48m,mode=0700"
	if owner != nil {
		options += fmt.Sprintf(",uid=%d,gid=%d", owner.Uid, owner.Gid)
	}
	if out, err := exec.CommandContext(ctx, "mount", "-t", "tmpfs", "-o", options, "outbox-chaos", folder).CombinedOutput(); err != nil {
		return fmt.Errorf("mounting a small disk: %w: %s", err, out)
	}
	return nil
}

// unmount takes the disk away, also while files are open.
func unmount(ctx context.Context, folder string) error {
	if out, err := exec.CommandContext(ctx, "umount", "-l", folder).CombinedOutput(); err != nil {
		return fmt.Errorf("unmounting %s: %w: %s", folder, err, out)
	}
	return nil
}

// mounts reports whether this process may make disks.
var mounts = sync.OnceValue(func() error {
	folder, err := os.MkdirTemp("", "outbox-chaos-")
	if err != nil {
		return err
	}
	if err := mount(context.Background(), folder, nil); err != nil {
		return errors.Join(err, os.Remove(folder))
	}
	return errors.Join(unmount(context.Background(), folder), os.Remove(folder))
})
