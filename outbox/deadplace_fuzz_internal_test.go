package outbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzDeadPlace: the place behind any letter that a store lists is read back, and any other text
// is refused with the name of the field.
func FuzzDeadPlace(f *testing.F) {
	for _, text := range []string{"", "x", "a,b", "2026-01-01T00:00:00Z,x", ByEndTime.Next(Cursor{AvailableAt: time.UnixMicro(1), EventID: "x"})} {
		f.Add(int64(0), "id", text)
		f.Add(int64(253402300799999999), "a,b", text)
		f.Add(time.Time{}.UnixMicro(), "undated", text)
		f.Add(int64(-62135596800000001), "of the year 0", text)
	}
	f.Fuzz(func(t *testing.T, micros int64, id, text string) {
		died := time.UnixMicro(micros).UTC()
		if storableID(id) && died.Year() >= 1 && died.Year() <= maxYear {
			place := Cursor{AvailableAt: died, EventID: id}
			got, err := byDeath.after("DeadQuery.After", byDeath.Next(place))
			require.NoError(t, err)
			require.Equal(t, died, got.AvailableAt)
			require.Equal(t, id, got.EventID)
			_, err = byDeath.after("DeadQuery.After", ByEndTime.Next(place))
			require.Error(t, err, "the place of another list")
		}
		got, err := byDeath.after("DeadQuery.After", text)
		switch field := (*FieldError)(nil); {
		case err != nil:
			require.ErrorAs(t, err, &field)
			require.Equal(t, "DeadQuery.After", field.Field)
		case text == "":
			require.True(t, got.IsZero())
		default:
			require.True(t, storableID(got.EventID))
			require.LessOrEqual(t, got.AvailableAt.Year(), maxYear)
		}
	})
}
