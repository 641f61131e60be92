package main_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// terminalPair opens a pseudoterminal: the side that shows and types, and the program's.
func terminalPair(t *testing.T) (terminal, line *os.File) {
	t.Helper()
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = terminal.Close() })
	var number, unlock uint32
	var mode syscall.Termios
	control := func(request uintptr, value unsafe.Pointer) {
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, terminal.Fd(), request, uintptr(value))
		require.Zero(t, errno)
	}
	control(syscall.TIOCSPTLCK, unsafe.Pointer(&unlock))
	control(syscall.TIOCGPTN, unsafe.Pointer(&number))
	control(syscall.TCGETS, unsafe.Pointer(&mode))
	mode.Lflag |= syscall.NOFLSH // else Ctrl-C may drop what the program answers to it
	control(syscall.TCSETS, unsafe.Pointer(&mode))
	line, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	return terminal, line
}
