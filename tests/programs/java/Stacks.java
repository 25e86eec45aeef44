import java.lang.reflect.Method;
import java.security.AccessController;
import java.security.PrivilegedAction;
import java.util.Arrays;
import java.util.EnumSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.stream.IntStream;

/**
 * Knows its own stacks. Runs each of some chains of calls for a while, from the outermost method to a leaf that burns CPU. Prints two lines for
 * each chain, of its begin and of later: its name, and the methods of the leaf's stack, innermost first, as CLASS METHOD LINE, separated by tabs. A
 * line of -2: native, of -1: not known.
 *
 * <pre>java Stacks MILLISECONDS ROUNDS     so many of CPU for each chain, and in each call of its leaf</pre>
 */
public class Stacks {
    static int rounds;
    static String told;
    static long sink;

    static final StackWalker WALKER =
        StackWalker.getInstance(EnumSet.of(StackWalker.Option.SHOW_HIDDEN_FRAMES, StackWalker.Option.RETAIN_CLASS_REFERENCE));

    /** Burns CPU, and once for each chain finds out who called it. */
    static long leaf() {
        long sum = 0;
        for (int i = 0; i < rounds; i++) {
            sum = sum * 31 + i;
        }
        if (told == null) {
            tell();
        }
        return sum;
    }

    static void tell() {
        StringBuilder line = new StringBuilder();
        WALKER.forEach(frame -> {
            line.append('\t').append(frame.getClassName()).append(' ').append(frame.getMethodName()).append(' ');
            line.append(frame.isNativeMethod() ? -2 : frame.getLineNumber());
        });
        told = line.toString();
    }

    static long outer() {
        return (
            // The call is on a line of its own.
            inner() + 1
        );
    }

    static long inner() {
        long local = rounds;
        return leaf() + local;
    }

    static long recursive(int depth) {
        return depth == 0 ? leaf() : recursive(depth - 1) + 1;
    }

    interface Shape {
        long area();
    }

    static class Square implements Shape {
        public long area() {
            return leaf() + 1;
        }
    }

    static class Circle implements Shape {
        public long area() {
            return leaf() + 2;
        }
    }

    static class Dot implements Shape {
        public long area() {
            return leaf() + 3;
        }
    }

    static class Made {
        final long value;

        Made(int by) {
            value = leaf() + by;
        }
    }

    static long shapes(Shape... all) {
        long sum = 0;
        for (Shape shape : all) {
            sum += shape.area();
        }
        return sum;
    }

    static final Object LOCK = new Object();

    static synchronized long locked() {
        synchronized (LOCK) {
            return leaf() + 1;
        }
    }

    static long caught() {
        try {
            throw new IllegalStateException("expected");
        } catch (IllegalStateException exception) {
            return leaf() + 1;
        } finally {
            sink++;
        }
    }

    public static long reflected() {
        return leaf() + 1;
    }

    interface Chain {
        long run() throws Exception;
    }

    static final Shape[] SHAPES = {new Square(), new Circle(), new Dot(), new Square()};

    public static void main(String[] arguments) throws Exception {
        long milliseconds = Long.parseLong(arguments[0]);
        rounds = Integer.parseInt(arguments[1]);
        Method method = Stacks.class.getMethod("reflected");
        Map<String, Chain> chains = new LinkedHashMap<>();
        chains.put("outer", () -> outer());
        chains.put("recursive", () -> recursive(100));
        chains.put("deep", () -> recursive(1000));
        chains.put("virtual", () -> shapes(SHAPES[0]));
        chains.put("stream", () -> IntStream.range(0, 2).mapToLong(i -> leaf() + i).filter(i -> i != 7).sum());
        chains.put("sort", () -> sorted());
        chains.put("locked", () -> locked());
        chains.put("caught", () -> caught());
        chains.put("reflected", () -> (long) (Long) method.invoke(null));
        chains.put("constructor", () -> new Made(3).value);
        chains.put("privileged", () -> AccessController.doPrivileged((PrivilegedAction<Long>) () -> leaf() + 1));
        // From now on, a call of `area` may lead anywhere.
        int usual = rounds;
        rounds = 1;
        told = "";
        for (int i = 0; i < 20_000; i++) {
            sink += shapes(SHAPES);
        }
        rounds = usual;
        for (Map.Entry<String, Chain> entry : chains.entrySet()) {
            Chain chain = entry.getValue();
            for (int half = 0; half < 2; half++) {
                told = null;
                long end = System.nanoTime() + milliseconds * 500_000;
                while (System.nanoTime() < end) {
                    for (int calls = 0; calls < 1_000_000 / rounds; calls++) {
                        sink += chain.run();
                    }
                }
                System.out.println(entry.getKey() + told);
            }
        }
    }

    static long sorted() {
        Integer[] values = {3, 1};
        Arrays.sort(values, (left, right) -> (int) (leaf() & 1) + left - right);
        return values[0];
    }
}
