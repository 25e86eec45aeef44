/** Calls itself as often as its first argument says, then spins. If its second argument is "tells", it prints its speed ten times a second. */
public class Deep {
    /** What a call is for. */
    static final int WARM = 0, SPIN = 1, TELL = 2;

    static int sink;

    static int spin(int what) {
        if (what == WARM) {
            return 1;
        }
        long begin = System.nanoTime();
        for (int count = 1;; count++) {
            int sum = 0;
            for (int number = 0; number < 100_000; number++) {
                sum = sum * 31 + number;
            }
            sink = sum;
            long now = System.nanoTime();
            if (what == TELL && now - begin > 100_000_000) {
                System.out.println(count * 1e9 / (now - begin));
                count = 0;
                begin = now;
            }
        }
    }

    static int down(int depth, int what) {
        return depth > 0 ? down(depth - 1, what) + 1 : spin(what);
    }

    public static void main(String[] arguments) {
        // From now on, `down` is compiled.
        for (int round = 0; round < 100_000; round++) {
            sink += down(20, WARM);
        }
        System.out.println("ready");
        down(Integer.parseInt(arguments[0]), arguments[1].equals("tells") ? TELL : SPIN);
    }
}
