import java.io.InputStream;

/**
 * Loads a class again and again, each time as another class, and runs its method for ten milliseconds. The class loaders are dropped, so that classes
 * are unloaded when garbage is collected: after so many as the second argument says. The first argument is the number of milliseconds. Prints how
 * many classes it has loaded.
 */
public class Loads {
    /** What is loaded. */
    public static class Loaded implements Runnable {
        static volatile long sink;

        static long work(long count) {
            long sum = count;
            for (long i = 0; i < count; i++) {
                sum = sum * 31 + i;
            }
            return sum;
        }

        @Override
        public void run() {
            long end = System.nanoTime() + 10_000_000;
            while (System.nanoTime() < end) {
                sink += work(1000);
            }
        }
    }

    /** Has one class. */
    static class Loader extends ClassLoader {
        Class<?> load(byte[] bytes) {
            return defineClass("Loads$Loaded", bytes, 0, bytes.length);
        }
    }

    public static void main(String[] arguments) throws Exception {
        byte[] bytes;
        try (InputStream stream = Loads.class.getResourceAsStream("Loads$Loaded.class")) {
            bytes = stream.readAllBytes();
        }
        long end = System.nanoTime() + Long.parseLong(arguments[0]) * 1_000_000;
        int every = Integer.parseInt(arguments[1]), loaded = 0;
        while (System.nanoTime() < end) {
            Runnable work = (Runnable) new Loader().load(bytes).getDeclaredConstructor().newInstance();
            work.run();
            loaded++;
            if (loaded % every == 0) {
                System.gc();
            }
        }
        System.out.println(loaded);
    }
}
