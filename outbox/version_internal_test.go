package outbox

import (
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheVersionOfAProgramIsThatOfItsBuild(t *testing.T) {
	t.Parallel()
	revision := []debug.BuildSetting{{Key: "vcs.revision", Value: "b19f4b51aaaabbbbccccdddd"}, {Key: "vcs.modified", Value: "false"}}
	modified := []debug.BuildSetting{{Key: "vcs.modified", Value: "true"}, {Key: "vcs.revision", Value: "b19f4b51"}}
	for want, info := range map[string]debug.BuildInfo{
		"v1.2.3":         {Main: debug.Module{Version: "v1.2.3"}, Settings: modified},
		"b19f4b51aaaa":   {Main: debug.Module{Version: "(devel)"}, Settings: revision},
		"b19f4b51+dirty": {Settings: modified},
		"":               {Main: debug.Module{Version: "(devel)"}, Settings: modified[:1]},
	} {
		require.Equal(t, want, versionOf(&info))
	}
	require.Len(t, versionOf(&debug.BuildInfo{Main: debug.Module{Version: "v1.2.3-" + strings.Repeat("x", 200)}}), MaxVersionLength)
}
