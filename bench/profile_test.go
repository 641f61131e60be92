package main

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestProfilesAreWrittenThoughTheWorkFails(t *testing.T) {
	folder, failed := t.TempDir(), errors.New("failed")
	require.ErrorIs(t, profiled(folder, func() error { return failed }), failed)
	files, err := os.ReadDir(folder)
	require.NoError(t, err)
	var names []string
	for _, file := range files {
		names = append(names, file.Name())
	}
	require.Equal(t, []string{"allocs.prof", "block.prof", "cpu.prof", "mutex.prof"}, names)
	require.ErrorIs(t, profiled(folder+"/missing", nil), os.ErrNotExist)
}
