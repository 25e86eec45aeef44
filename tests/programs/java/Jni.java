/**
 * Calls C that calls Java again, some times inside each other. Prints a line, as Stacks does.
 *
 * <pre>java Jni MILLISECONDS ROUNDS LIBRARY</pre>
 */
public class Jni {
    static long sink;

    static native long call(int depth);

    static long back(int depth) {
        return depth == 0 ? Stacks.leaf() : call(depth - 1) + 1;
    }

    public static void main(String[] arguments) {
        long end = System.nanoTime() + Long.parseLong(arguments[0]) * 1_000_000;
        Stacks.rounds = Integer.parseInt(arguments[1]);
        System.load(arguments[2]);
        while (System.nanoTime() < end) {
            for (int i = 0; i < 1000; i++) {
                sink += call(3);
            }
        }
        System.out.println("call" + Stacks.told);
    }
}
